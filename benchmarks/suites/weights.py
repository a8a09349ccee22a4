"""Weights in 32 to 4 bits: decoding, by how many rows write at once, loading.

  pip install -e .[llama]      compiles llama.cpp, for minutes
  python -m benchmarks.run --suite=weights      30 minutes on 2 cores

A Mamba-2 of the published 130 million's shape, with random weights, here and in
llama.cpp. Writing a token reads all of them: with one row, the bytes of the
weights are the limit, and with many the products are.
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True
PLATFORM = 'cpu'
select = tables.newest_by_device  # how far the memory is the limit differs

ROWS = (1, 16)
XLA = 'float32, XLA'  # not packed
FORMATS = 'float32', 'bfloat16', 'int8', 'int8_blocks', 'int4'
THEIRS = 'float32', 'bfloat16', 'int8_blocks', 'int4'  # llama.cpp's too
CLOSEST = {'int8': 'int8_blocks'}  # of llama.cpp's
HALVED = 'int8', 'int4'  # formats that are decoded with rounded states too
HALF_STATES = '{}, states in bfloat16'
READING = 'reading memory'
TRAINED = 'the default job, trained'
LOADS = 5  # processes
ROUNDS = 7  # with and without drafts
STEPS = 'import', 'load', 'token'
OUR_FILE, PACKED_NOW, THEIR_FILE = 'packed file', 'packed now', 'llama.cpp'
LOADED = {
  OUR_FILE: 'loading, {}',
  PACKED_NOW: 'loading, {}, without a file',
  THEIR_FILE: 'loading, llama.cpp, {}',
}
DOCUMENTS, BYTES = 24, 6000  # of the trained model's split
CONTINUED, PROMPT = 8, 1500  # of these documents, characters of each
READ = 1500  # tokens of these documents, with rounded states
NEW_TOKENS = 256  # of each text
SMALL = {
  'new_tokens': 2,
  'sizes': {'vocabulary': 64, 'model.width': 32, 'model.layers': 1},
}


def cases(quick: bool) -> list[case.Case]:
  """Each format beside llama.cpp's, in turns; what a trained model loses."""
  small = SMALL if quick else {}
  listed = []
  for rows in ROWS[: 1 if quick else None]:
    for name in FORMATS:
      given = {'format': name, 'rows': rows, **small}
      theirs = f'llama.cpp, {name}, rows {rows}'
      if name in THEIRS:
        workload = 'workloads.llama_cpp.decoding'
        listed.append(case.Case(theirs, workload, given, base=theirs))
      base = f'llama.cpp, {CLOSEST.get(name, name)}, rows {rows}'
      workload = 'workloads.packed.decoding'
      listed.append(
        case.Case(f'{name}, rows {rows}', workload, given, base=base)
      )
      if name in HALVED:
        named = f'{HALF_STATES.format(name)}, rows {rows}'
        given = given | {'states': 'bfloat16'}
        listed.append(case.Case(named, workload, given, base=base))
    given = {'format': '', 'rows': rows, **small}
    base = f'llama.cpp, float32, rows {rows}'
    listed.append(case.Case(f'{XLA}, rows {rows}', workload, given, base=base))
  given = {'mebibytes': 16 if quick else 1024}
  listed.append(case.Case(READING, 'workloads.peaks.reading', given, 20))
  listed += _loading(quick)
  steps = {'steps': 4, 'small': True} if quick else {}
  listed.append(
    case.Case(TRAINED, 'suites.weights.trained', steps, ROUNDS, timeout=3600.0)
  )
  return listed


def _loading(quick):
  """Yields times from a process's start to its first token, by format."""
  sizes = {'sizes': SMALL['sizes']} if quick else {}
  for name in FORMATS[: 1 if quick else None]:
    given, base = {'format': name, **sizes}, LOADED[THEIR_FILE].format(name)
    closest = LOADED[THEIR_FILE].format(CLOSEST.get(name, name))
    if name in THEIRS:
      workload = 'workloads.llama_cpp.loading'
      yield case.Case(base, workload, given, LOADS, base=closest)
    for kind, file in ((OUR_FILE, True), (PACKED_NOW, False)):
      yield case.Case(
        LOADED[kind].format(name),
        'workloads.loading.ours',
        given | {'file': file},
        LOADS,
        base=closest,
      )


def trained(repeats: int, steps: int = 1700, small: bool = False) -> tables.Row:
  """Trains the default job, rounds its matrices, and lets it draft.

  Args:
    repeats: rounds with and without drafts.
    steps: of training.
    small: whether the model is a tiny one, for a rehearsal.

  Returns:
    {'formats': {format: {'bits_per_byte', 'kl'}}}: of the first DOCUMENTS of
    the validation split, BYTES of each; the mean of a token's Kullback-
    Leibler divergence from what float32 predicts to what the format does, nats.
    {'drafts': see workloads.drafted.in_turns}: of CONTINUED documents.
    {'states': see workloads.states.divergence}: of READ tokens of documents.
  """
  import pathlib
  import tempfile

  import jax
  import jax.numpy as jnp

  from benchmarks.suites import compression
  from benchmarks.workloads import drafted
  from benchmarks.workloads import states as states_lib
  from configs import stdlib_bpe
  from rnn_jax.inference import generate
  from rnn_jax.inference import model as model_lib
  from rnn_jax.training import evaluate

  raw = stdlib_bpe.get_config()
  raw.train.update(steps=steps, checkpoint_every=steps)
  raw.evaluate.every = 0
  raw.schedule.warmup_steps = min(raw.schedule.warmup_steps, steps // 2)
  if small:
    raw.model.update(layers=1, width=16, mlp_width=16)
    raw.data.vocabulary = 300
  with tempfile.TemporaryDirectory() as folder:
    bundle = compression.train(raw, pathlib.Path(folder, 'run'), 'latest')
    run = evaluate.Run.open(str(pathlib.Path(folder, 'run')), 'latest')
    documents = run.corpus.documents['validation']
    count = min(len(documents), 2 if small else DOCUMENTS)
    read = [documents.read(n, 0, BYTES) for n in range(count)]
    texts = [each.decode(errors='ignore') for each in read]
    found, whole = {}, None
    for name in FORMATS:
      model = model_lib.Model(bundle, name)
      logp = [jax.nn.log_softmax(jnp.array(model.logits(x))) for x in texts]
      whole = whole or logp
      kl = [
        jnp.sum(jnp.exp(a) * (a - b), -1)
        for a, b in zip(whole, logp, strict=True)
      ]
      scores = model.score(texts)
      bits = sum(
        x.bits_per_byte * len(t.encode())
        for x, t in zip(scores, texts, strict=True)
      )
      found[name] = {
        'bits_per_byte': bits / sum(len(t.encode()) for t in texts),
        'kl': float(jnp.mean(jnp.concatenate(kl))),
      }
    prompts = [text[:PROMPT] for text in texts[:CONTINUED]]
    generators = [
      generate.Generator.from_bundle(bundle, FORMATS[0], batch_invariant)
      for batch_invariant in (False, True)
    ]
    count = 8 if small else NEW_TOKENS
    drafts = drafted.in_turns(*generators, prompts, repeats, count)
    states = states_lib.divergence(bundle, texts, 8 if small else READ)
  return {
    'formats': found,
    'steps': steps,
    'drafts': drafts,
    'states': states,
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Tokens/s of all rows together, and the time relative to llama.cpp's in the
  same or the closest format. The limit is what reading the weights once takes.
  """
  halved = map(HALF_STATES.format, HALVED)
  theirs = map('llama.cpp, {}'.format, THEIRS)
  names = [XLA, *FORMATS, *halved, *theirs]
  named = {
    name: {n: rows.get(f'{name}, rows {n}', {}) for n in ROWS} for name in names
  }
  yield tables.table(
    'weights | MB | limit, 1 row | '
    + ' | '.join(f'tokens/s, rows {n}' for n in ROWS),
    [
      (
        name,
        _megabytes(found),
        _limit(found[1], rows.get(READING, {})),
        *(_rate(found[n], rows) for n in ROWS),
      )
      for name, found in named.items()
    ],
  )
  yield (
    'A new process with the same model: seconds to load the weights (*packed '
    'now*: to read a checkpoint and pack it), to find the programs on the '
    'disk, and from its start to the first token; resident memory after '
    'imports, after loading and after that token:'
  )
  yield tables.table(
    'weights | MB | load, s | programs, s | first token, s | imported, MB | '
    'loaded, MB | after the token, MB',
    [
      (f'{name}, {kind}', *_loaded(rows.get(LOADED[kind].format(name), {})))
      for name in FORMATS
      for kind in LOADED
      if kind != THEIR_FILE or name in THEIRS
    ],
  )
  row = rows.get(TRAINED, {})
  if 'error' in row:
    yield f'{TRAINED}: {tables.short(row)}'
  if 'formats' in row:
    yield f'The default job after {row["steps"]:,} steps, rounded:'
    yield tables.table(
      'weights | bits per byte | KL divergence from float32, nats a token',
      [
        (name, f'{own["bits_per_byte"]:.4f}', f'{own["kl"]:.1e}')
        for name, own in row['formats'].items()
      ],
    )
  if 'states' in row:
    own = row['states']
    yield (
      f'The same model reads {own["tokens"]:,} tokens of {own["texts"]} '
      'documents one by one, its states in bfloat16: the divergence from '
      'float32 states in nats per token, by quarter of the documents:'
    )
    yield tables.table(
      '| '.join(f'quarter {n + 1} ' for n in range(len(own['by_part']))),
      [[f'{kl:.1e}' for kl in own['by_part']]],
    )
  if 'drafts' in row:
    yield (
      f'The same model writes {CONTINUED} texts, one at a time, with drafts of '
      'several tokens by prompt lookup; the texts are equal to the bit. The '
      'time is relative to that without drafts, with its 95 % interval:'
    )
    yield tables.table(
      'sampling | tokens drafted | tokens a run of the model | time',
      [
        (
          own['sampling'],
          str(own['draft_tokens']),
          f'{own["tokens_a_call"]:.2f}',
          f'{own["ratio"]:.2f} ({own["low"]:.2f} to {own["high"]:.2f})',
        )
        for own in row['drafts']
      ],
    )
  yield tables.unmeasured(cases(False), rows)


def _megabytes(found):
  sizes = [row['bytes'] for row in found.values() if 'bytes' in row]
  return f'{sizes[0] / 1e6:.0f}' if sizes else '-'


def _limit(row, reading):
  if 'bytes' not in row or 'bytes_per_second' not in reading:
    return '-'
  return f'{reading["bytes_per_second"] / row["bytes"]:.0f}'


def _loaded(row):
  if 'median' not in row:
    return (tables.short(row) if 'error' in row else '-', *['-'] * 6)
  return (
    f'{row["bytes"] / 1e6:.0f}',
    f'{row["load_seconds"]:.2f}',
    f'{row["compile_seconds"]:.2f}',
    f'{row["median"]:.2f}',
    *(f'{row[f"{step}_bytes"] / 1e6:.0f}' for step in STEPS),
  )


def _rate(row, rows):
  if 'median' not in row:
    return tables.short(row) if 'error' in row else '-'
  rate, base = tables.rate(row['tokens_per_second']), row.get('base')
  if base == row['case'] or base not in rows:
    return rate
  return f'{rate} ({tables.relative(row, rows[base])})'
