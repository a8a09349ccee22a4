"""Epochs of the input pipeline, and what training makes of their padding."""

import collections
import tempfile
import time

import jax

from benchmarks import datasets
from benchmarks import measure
from rnn_jax import config as config_lib
from rnn_jax.data import growth
from rnn_jax.data import pipeline
from rnn_jax.training import memory
from rnn_jax.training import step as step_lib

STEPS = 5  # training steps that are timed
MODEL = {'layers': 1, 'width': 64, 'mlp_width': 128}


def epoch(repeats, name, data, limit=0):
  """Seconds an epoch on a data set, how much of it is padding, its shapes.

  Epochs are read with nobody to compute on the batches. Then training steps of
  a small model are timed at the shape that was met most.
  """
  with tempfile.TemporaryDirectory() as folder:
    config, corpus = _open(name, data, limit, folder)
    batches = pipeline.training_batches(corpus, config)
    try:
      next(batches)  # Starts the workers.
      epochs = [_epoch(batches, end) for end in _ends(corpus, config, repeats)]
    finally:
      batches.close()
  found = [batch for _, some in epochs for batch in some]
  return (
    _summary([seconds for seconds, _ in epochs], found)
    | _training(step_lib.from_config(config, corpus.tokenizer), found)
    | {
      'possible_shapes': len(pipeline.batch_shapes(corpus, config)),
      'examples': len(corpus.examples(config.data, 'train')),
      'length': config.data.length,
      'batch_tokens': config.data.tokens_per_batch,
    }
  )


def _open(name, data, limit, folder):
  """The Config and Corpus, rows as long as the longest document.

  `boundaries` and `growth` are of any data set: those that are shorter count.
  """
  raw = config_lib.default()
  raw.data.splits = (100, 0, 0)
  raw.model.update(MODEL)
  raw.data.update(datasets.overrides(name, folder, limit))
  fixed = {'tokens_per_batch': 0, 'memory_gib': 0.0}
  raw.data.update(data | fixed | {'boundaries': (), 'growth': ()})
  longest = _longest(pipeline.Corpus.open(config_lib.parse(raw), folder))
  raw.data.update(data | {'length': longest})
  for key, end in (('boundaries', (longest,)), ('growth', ())):
    if shorter := tuple(n for n in data.get(key, ()) if n < longest):
      raw.data[key] = shorter + end
  config = config_lib.parse(raw)
  corpus = pipeline.Corpus.open(config, folder)
  return memory.resolve(config, corpus.tokenizer, folder, 1), corpus


def _longest(corpus):
  """Tokens that the longest document predicts, with its boundary."""
  documents = corpus.documents['train']
  encode = corpus.tokenizer.encode_document
  return 1 + max(len(encode(documents.read(n))) for n in range(len(documents)))


def _ends(corpus, config, epochs):
  """Where each epoch ends, as `_place`: a stage cuts examples of its own."""
  stages = growth.stages(config.data)
  for epoch in range(epochs):
    now = max(n for n, stage in enumerate(stages) if stage.first <= epoch)
    per_epoch = len(corpus.examples(stages[now].data, 'train'))
    yield now, (epoch + 1) * per_epoch


def _epoch(batches, end):
  """Reads up to the place `end`. Returns seconds and (tokens, shape) pairs."""
  begin, found = time.perf_counter(), []
  while not found or _place(batches) < end:
    weights = next(batches).weights_BxL
    found.append((int(weights.sum()), weights.shape))
  return time.perf_counter() - begin, found


def _place(batches):
  """The stage of growth, and how many examples up to there."""
  state = batches.get_state()
  position = state.get('batches', state)['examples']['position']
  return state.get('stage', 0), position


def _summary(seconds, found):
  """What all epochs together hold, and how long one takes."""
  real = sum(tokens for tokens, _ in found)
  padded = sum(rows * length for _, (rows, length) in found)
  return measure.summarize(seconds) | {
    'padding_efficiency': real / padded,
    'shapes': sorted({shape for _, shape in found}),
    'batches': len(found) / len(seconds),
    'tokens': real / len(seconds),
    'tokens_per_second': real / sum(seconds),
  }


def _training(steps, found):
  """Real tokens that training learns from in a second.

  A step is timed at the shape that was met most; what it takes a token, padding
  among them, is what steps of other shapes are taken to take.
  """
  (((rows, length), _),) = collections.Counter(
    shape for _, shape in found
  ).most_common(1)
  real = sum(tokens for tokens, _ in found)
  padded = sum(rows * length for _, (rows, length) in found)
  timed = rows * length / _step_seconds(steps, rows, length)
  return {'trained_per_second': timed * real / padded}


def _step_seconds(steps, rows, length):
  """What a training step of that shape takes, its compilation apart."""
  program = steps.compile_train(rows, length)
  state = steps.init(0, rows)
  batch = jax.device_put(
    steps.task.blank_batch(rows, length), steps.batch_sharding
  )

  def run():
    nonlocal state
    state, _ = jax.block_until_ready(program(state, batch))

  return measure.repeat(run, STEPS)['median']
