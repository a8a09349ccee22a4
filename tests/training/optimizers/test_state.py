"""The state of every optimizer: its bytes, and that a checkpoint holds all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.models import dense
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.tasks import language_modeling
from rnn_jax.training import optimizer
from rnn_jax.training import programs as programs_lib
from rnn_jax.training.memory import batch_size
from tests.support import saved
from tests.training.optimizers import following

NAMES = config_lib.names('training/optimizers')
SHAPES = {'blocks': {'kernel': (2, 3, 4)}, 'head': {'kernel': (4, 3)}}


FACTORED = ('kfac',)  # whose updates take factors of kernels


def draw(seed):
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda shape: np.float32(rng.normal(size=shape)),
    SHAPES,
    is_leaf=lambda x: isinstance(x, tuple),
  )


@pytest.mark.parametrize('name', NAMES)
def test_a_run_resumes_from_a_checkpoint_bit_for_bit(name, tmp_path):
  settings = following.config(name, clip_norm=1.0)
  stacked, kernels = {'blocks/kernel'}, {'blocks/kernel', 'head/kernel'}
  blank = dense.blank(draw(0), kernels, 3) if name in FACTORED else {}
  transform = optimizer.make(settings.optimizer, following.rate, stacked, blank)

  def step(state, gradient):
    factors = jax.tree.map(  # of rows that are all the same
      lambda x: x + jnp.sum(gradient['blocks']['kernel'] ** 2), blank
    )
    updates, new = transform.update(
      gradient, state['optimizer'], state['params'], factors=factors
    )
    params = jax.tree.map(lambda p, u: p + u, state['params'], updates)
    return {'params': params, 'optimizer': new}

  def begin(params):
    return {'params': params, 'optimizer': transform.init(params)}

  step, begin = jax.jit(step), jax.jit(begin)
  state = begin(draw(0))
  for n in (1, 2):
    state = step(state, draw(n))
  with_folder = checkpoint.Checkpoints(tmp_path, 1)
  saved.save(with_folder, 2, state)
  _, restored, _ = saved.restore(with_folder, begin(draw(7)))
  with_folder.close()
  # Optax's own types come back as such.
  uninterrupted, resumed = step(state, draw(3)), step(restored, draw(3))
  jax.tree.map(np.testing.assert_array_equal, uninterrupted, resumed)
  assert not np.array_equal(
    uninterrupted['params']['head']['kernel'], state['params']['head']['kernel']
  )


@functools.cache
def parameters():
  """What makes a model's parameters, their shapes, and these by name."""
  raw = config_lib.default()
  raw.model.update(width=32, mlp_width=48)
  task = language_modeling.make(config_lib.parse(raw), tokenizer.Bytes())
  shapes = jax.eval_shape(task.init_parameters, jax.random.key(0))
  named = {
    optimizer.parameter_name(path): x.shape
    for path, x in jax.tree.leaves_with_path(shapes)
  }
  return task.init_parameters, shapes, named


def preconditioners(named, longest):
  """Numbers of Shampoo's sums: n^2 for each axis of each layer, or n."""
  total = 0
  for name, shape in named.items():
    layers, own = (shape[0], shape[1:]) if 'blocks' in name else (1, shape)
    total += layers * sum(n if n > longest else n * n for n in own)
  return total


def matrices(named):
  """Numbers of the kernels between the embedding and the head."""
  return sum(
    int(np.prod(shape))
    for name, shape in named.items()
    if 'blocks' in name and name.endswith('kernel')
  )


def factor_numbers(named, longest):
  """Numbers of the factors of the kernels between embedding and head."""
  kernels = {
    name: shape
    for name, shape in named.items()
    if 'blocks' in name and name.endswith('kernel')
  }
  return preconditioners(kernels, longest)


# Bytes, of the numbers of all parameters.
FORMULAS = {
  'sgd': ({}, lambda named, count: 4 * count),
  'sgd, b1 0': ({'b1': 0.0}, lambda named, count: 0),
  'lars': ({}, lambda named, count: 4 * count),
  'lion': ({}, lambda named, count: 4 * count),
  'adamw': ({}, lambda named, count: 8 * count),
  'radam': ({}, lambda named, count: 8 * count),
  'adabelief': ({}, lambda named, count: 8 * count),
  'lamb': ({}, lambda named, count: 8 * count),
  'adamw, averaged': ({'ema_decay': 0.9}, lambda named, count: 12 * count),
  'schedule_free': ({}, lambda named, count: 8 * count),
  'muon': ({}, lambda named, count: 8 * count - 4 * matrices(named)),
  'kfac': (
    {},
    lambda named, count: (
      8 * count - 4 * matrices(named) + 8 * factor_numbers(named, 1024)
    ),
  ),
  'kfac, longest 40': (
    {'longest_side': 40},
    lambda named, count: (
      8 * count - 4 * matrices(named) + 8 * factor_numbers(named, 40)
    ),
  ),
  'shampoo': (
    {},
    lambda named, count: 8 * count + 8 * preconditioners(named, 1024),
  ),
  'shampoo, longest 40': (
    {'longest_side': 40, 'b1': 0.0, 'grafting': 'none'},
    lambda named, count: 8 * preconditioners(named, 40),
  ),
}


@pytest.mark.parametrize('case', FORMULAS)
def test_bytes_of_state(case):
  changes, formula = FORMULAS[case]
  init, shapes, named = parameters()
  stacked = frozenset(name for name in named if 'blocks' in name)
  settings = following.config(case.partition(',')[0], **changes)
  factors = optimizer.factor_shapes(settings.optimizer, init, shapes)
  transform = optimizer.make(
    settings.optimizer, following.rate, stacked, factors
  )
  size = batch_size.tree_bytes(jax.eval_shape(transform.init, shapes))
  count = sum(x.size for x in jax.tree.leaves(shapes))
  # Numbers of steps and the like besides.
  assert 0 <= size - formula(named, count) <= 32


def test_every_optimizer_has_its_formula():
  """Adafactor's is in its own test."""
  assert {case.partition(',')[0] for case in FORMULAS} | {'adafactor'} == {
    *NAMES
  }


def test_layers_of_a_model_are_known_by_name():
  settings = config_lib.parse(config_lib.default())
  one = jax.devices()[:1]
  made = programs_lib.from_config(settings, tokenizer.Bytes(), one)
  assert made.states.placement.stacked == {
    f'stack/blocks/cell/{name}'
    for name in ('gate_bias', 'output/kernel', 'projection/kernel', 'taps')
  }
