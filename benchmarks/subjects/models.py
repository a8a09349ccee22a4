"""Our model at the size of the published benchmark, and changes of it.

    config = models.config({'recurrence.impl': 'scan'}, batch=32, length=512)

D 128, K 32, P 64, two layers, vocabulary 512: 189,504 weights.
"""

import types

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.subjects import inputs
from benchmarks.subjects import variants
from configs import published
from rnn_jax import config as config_lib
from rnn_jax.cells import simple_rnn
from rnn_jax.data import batch as batch_lib
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.tasks import language_modeling
from rnn_jax.training import step as step_lib

TOKENIZER = types.SimpleNamespace(size=inputs.VOCABULARY, lossless=False)


def config(overrides, batch, length):
  """The published config with `overrides`, {'section.key': value}."""
  raw = published.get_config()
  raw.data.batch_size, raw.data.length = batch, length
  for key, value in (overrides or {}).items():
    section, _, name = key.partition('.')
    raw[section][name] = value
  return config_lib.parse(raw)


def use_cell(name):
  """Puts a cell of benchmarks.subjects.variants in SimpleRNN's place.

  A config names cells of the package alone; this process runs one case.
  """
  if name:
    simple_rnn.Cell = variants.cell(name)


def make_task(overrides, batch, length):
  """The task of that config: model, initial parameters, loss."""
  return language_modeling.Task(config(overrides, batch, length), TOKENIZER)


def make_steps(overrides, batch, length):
  """The training step of that config."""
  parsed = config(overrides, batch, length)
  task = language_modeling.Task(parsed, TOKENIZER)
  return step_lib.Steps(task, parsed, mesh_lib.make())


def make_batch(batch, length, sharding=None):
  """A batch of random tokens on the device."""
  drawn = inputs.tokens(batch, length)
  starts = np.zeros((batch, length), np.int32)
  weights = np.ones((batch, length), np.float32)
  made = batch_lib.Batch(
    np.ascontiguousarray(drawn[:, :-1]),
    np.ascontiguousarray(drawn[:, 1:]),
    weights,
    starts,
  )
  return jax.device_put(made, sharding)


def init(task, seed=0):
  """New parameters on the device."""
  return jax.jit(lambda: task.init_parameters(jax.random.key(seed)))()


def count(params, expected=0):
  """How many weights these are.

  Raises:
    RuntimeError: not as many as `expected`, unless that is 0.
  """
  found = sum(x.size for x in jax.tree.leaves(params))
  if expected not in (0, found):
    raise RuntimeError(f'{found:,} weights, not {expected:,}')
  return found


def training_flops(config, batch, length):
  """Floating-point operations that a training step of 'simple' cells needs.

  A multiplication and an addition are two; the recurrence takes five for each
  number of its state: decay, write (two), read (two). The backward pass of a
  product is two products, and so three times the forward pass in all.
  """
  model, cell = config.model, config.cell
  keys, values = cell.key_width, cell.value_width
  projections = 2 * model.width * sum(cell.widths.values())
  recurrence = 5 * cell.heads * keys * values
  output = 2 * cell.heads * values * model.width
  layers = model.layers * (projections + recurrence + output)
  head = 2 * model.width * inputs.VOCABULARY
  return 3 * batch * length * (layers + head)


def wait(tree):
  """Waits for the device."""
  return jax.block_until_ready(tree)


def greedy(logits):
  """The likeliest token of the last axis."""
  return jnp.argmax(logits, -1).astype(jnp.int32)
