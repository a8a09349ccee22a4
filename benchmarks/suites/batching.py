"""Each way to make batches, on each data set: padding, shapes, tokens/s.

Epochs are read while nothing computes on the batches. Then training steps of a
small model are timed at the shape that occurred most often. See
benchmarks/harness/datasets.py for how data sets are given.

  BENCHMARK_DATA=reviews=PATH.jsonl:text \\
      python -m benchmarks.run --suite=batching

13 minutes per data set on 2 cores.
"""

from benchmarks.harness import case
from benchmarks.harness import datasets
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

BALANCED = {'bucketing': 'balanced'}
LEAST = {'bucketing': 'least_padding'}
LEAST_8 = LEAST | {'buckets': 8}
CHOICES = {
  'one length': {'buckets': 1},
  'padded': {'layout': 'padded'},
  'sorted, pool 4': {'layout': 'sorted', 'pool': 4},
  'sorted, pool 16': {'layout': 'sorted'},
  'sorted, pool 16, multiples of 64': {
    'layout': 'sorted',
    'length_multiple': 64,
  },
  'buckets, quantile 4': {},
  'buckets, quantile 8': {'buckets': 8},
  'buckets, balanced 4': BALANCED,
  'buckets, balanced 8': BALANCED | {'buckets': 8},
  'buckets, least padding 4': LEAST,
  'buckets, least padding 8': LEAST_8,
  'buckets, powers': {'bucketing': 'powers'},
  'buckets, given': {'boundaries': (16, 32, 64, 128, 256)},
  'buckets, least padding 4, each split by rarity': LEAST
  | {'rarity_buckets': 2},
  'buckets, least padding 8, rows for 1 GiB': LEAST_8
  | {'tokens_per_batch': 0, 'memory_gib': 1.0},
  'buckets, least padding 8, easy rows first': LEAST_8
  | {'curriculum': 'length', 'curriculum_epochs': 1},
  'buckets, least padding 8, growing: 16, 64, whole': LEAST_8
  | {'length_schedule': (16, 64)},
  'packed, first fit': {'layout': 'packed'},
  'packed, best fit': {'layout': 'packed', 'fit': 'best'},
  'stream': {'layout': 'stream'},
}
STEPS = 5  # training steps that are timed
MODEL = {'layers': 1, 'width': 64, 'mlp_width': 128}


def cases(quick: bool) -> list[case.Case]:
  """Every choice on every data set, with one budget of tokens per batch.

  A row is as long as the longest example, so that none is cut. Three epochs are
  those of the curriculum's stages, and of the lengths that grow.
  """
  tokens, limit = (2048, 100) if quick else (8192, 0)
  sizes = {
    'tokenizer': 'bpe',
    'vocabulary': 300 if quick else 4096,
    'tokens_per_batch': tokens,
  }
  return [
    case.Case(
      f'{name}: {choice}',
      'suites.batching.epoch',
      {'name': name, 'data': {**sizes, **data}, 'limit': limit},
      3,
    )
    for name in datasets.names()
    for choice, data in CHOICES.items()
  ]


def epoch(
  repeats: int, name: str, data: tables.Row, limit: int = 0
) -> tables.Row:
  """Seconds per epoch on a data set, its share of padding, its shapes."""
  import tempfile

  from rnn_jax.data import pipeline
  from rnn_jax.training import programs as programs_lib

  with tempfile.TemporaryDirectory() as folder:
    config, corpus = _open(name, data, limit, folder)
    batches = pipeline.training_batches(corpus, config)
    ends = [*_ends(corpus, config, repeats)]
    try:
      next(batches)  # Starts the workers.
      begins = [1, *ends]
      epochs = [
        _read(batches, *each) for each in zip(begins, ends, strict=False)
      ]
    finally:
      batches.close()
  trained = programs_lib.from_config(config, corpus.tokenizer)
  return _summary(trained, *zip(*epochs, strict=True)) | {
    'possible_shapes': len(pipeline.batch_shapes(corpus, config)),
    'examples': len(corpus.windows(config.data, 'train', 0)),
    'length': config.data.length,
    'batch_tokens': config.data.tokens_per_batch,
  }


def _open(name, data, limit, folder):
  """The Config and Corpus, rows as long as the longest document.

  `boundaries` and `length_schedule` are those of any data set: the shorter
  ones count.
  """
  from rnn_jax import config as config_lib
  from rnn_jax.data import corpus as corpus_lib
  from rnn_jax.training import resolve

  raw = config_lib.default()
  raw.data.splits = (100, 0, 0)
  raw.model.update(MODEL)
  raw.data.update(datasets.overrides(name, folder, limit))
  fixed = {'tokens_per_batch': 0, 'memory_gib': 0.0}
  ends = {'boundaries': (), 'length_schedule': ()}
  raw.data.update(data | fixed | {key: () for key in ends if key in data})
  longest = _longest(corpus_lib.Corpus.open(config_lib.parse(raw), folder))
  raw.data.update(data | {'length': longest})
  ends['boundaries'] = (longest,)
  for key, end in ends.items():
    if shorter := tuple(n for n in data.get(key, ()) if n < longest):
      raw.data[key] = shorter + end
  config = config_lib.parse(raw)
  resolved = resolve.resolve(config)
  return resolved.config, resolved.corpus


def _longest(corpus):
  """Tokens that the longest document predicts, with its boundary."""
  documents = corpus.documents['train']
  encode = corpus.tokenizer.encode_document
  return 1 + max(len(encode(documents.read(n))) for n in range(len(documents)))


def _ends(corpus, config, epochs):
  """How many batches there are up to the end of each epoch."""
  from rnn_jax.data import pipeline

  for number in range(1, epochs + 1):
    yield round(pipeline.batches_in(number, corpus, config))


def _read(batches, done, end):
  """Reads batches up to number `end`. Returns seconds and (tokens, shape)."""
  read = []

  def run():
    while done + len(read) < end:
      weights = next(batches).weights_BxL
      read.append((int(weights.sum()), weights.shape))

  return measure.seconds(run), read


def _summary(trained, seconds, epochs):
  """What all epochs together hold, how long one takes, and to train on it.

  A step is timed at the shape that occurred most often; steps of other shapes
  are taken to need as long per token, padding included.
  """
  import collections

  read = [batch for epoch in epochs for batch in epoch]
  real = sum(tokens for tokens, _ in read)
  padded = sum(rows * length for _, (rows, length) in read)
  shapes = collections.Counter(shape for _, shape in read)
  (((rows, length), _),) = shapes.most_common(1)
  trained = rows * length / _step_seconds(trained, rows, length)
  return measure.summarize(seconds) | {
    'padding_efficiency': real / padded,
    'shapes': sorted(shapes),
    'batches': len(read) / len(seconds),
    'tokens': real / len(seconds),
    'tokens_per_second': real / sum(seconds),
    'trained_per_second': trained * real / padded,
  }


def _step_seconds(trained, rows, length):
  """The seconds of a training step of that shape, without its compilation."""
  import jax

  from benchmarks.workloads import programs

  batch = jax.device_put(
    trained.task.blank_batch(rows, length), trained.batch_sharding
  )
  program = trained.compile_train(rows, length)
  run = programs.step(program, trained.states.init(rows), batch)
  return measure.repeat(run, STEPS)['median']


COLUMNS = {
  'real tokens': lambda row: f'{100 * row["padding_efficiency"]:.1f} %',
  'shapes': lambda row: f'{len(row["shapes"])} of {row["possible_shapes"]}',
  'batches per epoch': lambda row: f'{row["batches"]:,.0f}',
  'an epoch read': tables.timed,
  'tokens/s read': lambda row: tables.rate(row['tokens_per_second']),
  'tokens/s trained': lambda row: tables.rate(row.get('trained_per_second')),
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table and a plot for each data set."""
  names = (row['parameters'].get('name') for row in rows.values())
  for name in dict.fromkeys(filter(None, names)):
    chosen = tables.with_prefix(rows, f'{name}: ')
    good = {choice: row for choice, row in chosen.items() if 'median' in row}
    yield f'**{name}**'
    for row in [*good.values()][:1]:
      yield (
        f'{row["examples"]:,} examples, rows of {row["length"]:,} tokens at '
        f'most, {row["parameters"]["data"]["tokens_per_batch"]:,} tokens per '
        'batch.'
      )
    yield tables.by_row('choice', chosen, COLUMNS)
    if good:
      yield plots.bars(
        name,
        {n: 100 * row['padding_efficiency'] for n, row in good.items()},
        f'{name}: real tokens, % of a batch',
      )
