"""A cell in the place of SimpleRNN, at as many weights."""

import functools
import math
import tempfile
import time

import jax

from benchmarks import datasets
from benchmarks import measure
from benchmarks.subjects import decoding as decoding_lib
from benchmarks.subjects import models
from benchmarks.subjects import recall as recall_lib
from configs import recall as recall_config
from configs import tiny_shakespeare
from rnn_jax import config as config_lib
from rnn_jax.data import pipeline
from rnn_jax.inference import layers
from rnn_jax.models import language_model
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.tasks import language_modeling
from rnn_jax.training import evaluate
from rnn_jax.training import memory
from rnn_jax.training import program_memory
from rnn_jax.training import step as step_lib

REFERENCE = 'simple_rnn'
CHARACTERS = 65  # of Tiny Shakespeare; that many weights all models have more
WIDEST = 4096
POINTS = 20  # of a curve of losses


def training(repeats, cell, size, data, steps, limit=0, overrides=None):
  """Trains on a data set of benchmarks.datasets; losses, seconds, bytes.

  The learning rate's schedule ends with `steps`. `repeats` is of no use here.
  """
  del repeats
  raw = sized(tiny_shakespeare.get_config, cell, size, overrides)
  raw.train.steps = steps
  raw.schedule.warmup_steps = min(raw.schedule.warmup_steps, steps // 2)
  with tempfile.TemporaryDirectory() as folder:
    raw.data.update(datasets.overrides(data, folder, limit))
    config = config_lib.parse(raw)
    corpus = pipeline.Corpus.open(config, folder)
    made = step_lib.from_config(config, corpus.tokenizer)
    params, values = _train(made, corpus, config)
    values['held_out'] = evaluate.evaluate(
      made, params, corpus, config, 'validation'
    )
  rows, length = config.data.batch_size, config.data.length
  program = made.compile_train(rows, length)
  return values | {
    **_told(raw, size),
    'weights': models.count(params),
    'tokens_per_second': rows * length / values['median'],
    'temp_bytes': program_memory.of(program).temporaries,
  }


def _train(made, corpus, config):
  place = functools.partial(mesh_lib.put, shardings=made.batch_sharding)
  batches = pipeline.training_batches(corpus, config, place=place)
  state = made.init(config.train.seed, config.data.batch_size)
  seconds, losses = [], []
  for _ in range(config.train.steps):
    begin = time.perf_counter()
    state, found = made.train(state, next(batches))
    sums = jax.device_get(found['sums'])
    seconds.append(time.perf_counter() - begin)
    losses.append(float(sums['loss'] / sums['weight']))
  batches.close()
  values = measure.summarize(seconds[1:])  # the first one compiles
  return state['params'], values | {'curve': _curve(losses)}


def _curve(losses):
  """POINTS of [step, mean of the losses since the point before]."""
  every = -(-len(losses) // POINTS)
  return [
    [end, math.fsum(losses[end - every : end]) / every]
    for end in range(every, len(losses) + 1, every)
  ]


def decoding(repeats, cell, size, steps=1000, overrides=None):
  """Latency of one step of one row, called from Python; bytes of its state."""
  del repeats
  raw = sized(tiny_shakespeare.get_config, cell, size, overrides)
  task = language_modeling.Task(config_lib.parse(raw), models.TOKENIZER)
  model = layers.for_inference(task.model)
  params = jax.jit(layers.unstack)(models.init(task))
  state = model.apply({}, 1, method='init_state')
  values = {'state_bytes': memory.tree_bytes(state), **_told(raw, size)}
  return values | decoding_lib.latency(model, params, state, 1, steps)


def recall(repeats, cell, size, distance, steps, overrides=None):
  """Answers right of associative recall, as suite recall counts them."""
  del repeats
  raw = sized(recall_config.get_config, cell, size, overrides)
  options = {'distance': distance}
  found = recall_lib.learn(raw, 'recall', options, steps)
  return found | _told(raw, size)


def _told(raw, size):
  return {'size': raw.cell[size] if size else 0}


def sized(get_config, cell, size, overrides=None):
  """A config whose model has as many weights as the reference's.

  Args:
    get_config: of a file of configs/, which takes a cell.
    cell: a file of rnn_jax/cells.
    size: the option of the cell to find; empty: it is the reference.
    overrides: {'section.key': value} of this cell's config; of the
      reference's no more than 'model.width'.

  Raises:
    RuntimeError: no width of the cell comes within 3 %.
  """

  overrides = overrides or {}
  shared = {key: overrides[key] for key in overrides if key == 'model.width'}

  def made(cell, value=0, overrides=overrides):
    raw = get_config(cell)
    raw.update_from_flattened_dict(overrides)
    if value:
      # As wide as the model, a cell would lose its output matrix.
      same = size == 'state_width' and value == raw.model.width
      raw.cell[size] = value + same
    return raw

  if not size:
    return made(cell)
  wanted = weights(made(REFERENCE, overrides=shared))
  even = 2 if made(cell).cell.get('rotary', 0) else 1
  low, high = 1, WIDEST
  while high - low > 1:
    middle = (low + high) // 2
    enough = weights(made(cell, even * middle)) >= wanted
    low, high = (low, middle) if enough else (middle, high)
  near = [made(cell, even * n) for n in (low, high)]
  best = min(near, key=lambda raw: abs(weights(raw) - wanted))
  if abs((found := weights(best)) - wanted) > 0.03 * wanted:
    raise RuntimeError(f'{cell}: {found:,} weights, not about {wanted:,}')
  return best


def weights(raw):
  """How many weights the language model of a config has, but its vocabulary's.

  Nothing is computed.
  """
  model = language_model.from_config(config_lib.parse(raw), CHARACTERS)
  tokens = jax.ShapeDtypeStruct((1, 2), 'int32')
  state = jax.eval_shape(lambda: model.apply({}, 1, method='init_state'))
  shapes = jax.eval_shape(model.init, jax.random.key(0), state, tokens)
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
