"""AdamW, its moments in every format, against equations in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rnn_jax.ops import blockwise
from rnn_jax.training import optimizer
from rnn_jax.training import schedule
from tests.training import test_optimizer
from tests.training import test_schedule
from tests.training.optimizers import following

SHAPES = {'kernel': (70, 60), 'bias': (20,)}


def draw(rng):
  """Numbers of different sizes, and a large and a small tensor of them."""
  return {
    name: rng.normal(size=shape) * 10.0 ** rng.uniform(-4, 0, shape)
    for name, shape in SHAPES.items()
  }


def nearest(x, code):
  """What is left of numbers that were stored as bytes, by brute force."""
  if x.size < 4096:
    return x
  out = np.zeros(x.size)
  for begin in range(0, x.size, 256):
    block = x.reshape(-1)[begin : begin + 256]
    largest = np.abs(block).max()
    entries = np.argmin(np.abs(block[:, None] / largest - code), 1)
    if code[0] == 0:  # the second moment
      entries[block > 0] = np.maximum(entries[block > 0], 1)
    out[begin : begin + 256] = code[entries] * largest
  return out.reshape(x.shape)


def exact(x, code):
  del code
  return x


@pytest.mark.parametrize(
  # A quotient in the middle of two entries may go either way: 1 of 4200.
  ('moments', 'store', 'fraction'),
  (('float32', exact, 0.0), ('int8', nearest, 1e-3)),
)
def test_parameters_follow_the_published_equations(moments, store, fraction):
  settings = test_optimizer.config(
    clip_norm=0.0, weight_decay=0.1, moments=moments
  )
  rng = np.random.default_rng(0)
  params, *gradients = (draw(rng) for _ in range(7))
  transform = optimizer.make(settings.optimizer, schedule.make(settings).rate)
  ours = following.follow(transform, params, gradients)
  m = v = {name: np.zeros(shape) for name, shape in SHAPES.items()}
  for step, gradient in enumerate(gradients):
    rate = test_schedule.reference_rate(settings, step)
    m = {n: 0.9 * m[n] + 0.1 * gradient[n] for n in m}
    v = {n: 0.99 * v[n] + 0.01 * gradient[n] ** 2 for n in v}
    for name, value in params.items():
      direction = m[name] / (1 - 0.9 ** (step + 1))
      scale = np.sqrt(v[name] / (1 - 0.99 ** (step + 1))) + 1e-8
      decay = 0.1 * value if name == 'kernel' else 0.0
      params[name] = value - rate * (direction / scale + decay)
    m = {n: store(x, np.float64(blockwise.SIGNED)) for n, x in m.items()}
    v = {n: store(x, np.float64(blockwise.UNSIGNED)) for n, x in v.items()}
  for name, value in params.items():
    equal = np.isclose(ours[name], value, rtol=1e-5, atol=1e-7)
    assert np.mean(~equal) <= fraction
    np.testing.assert_allclose(ours[name], value, atol=1e-4)


def test_float32_is_optax_s_adamw_to_the_bit():
  settings = test_optimizer.config(clip_norm=0.0, weight_decay=0.1)
  options = settings.optimizer
  rate = optax.constant_schedule(1e-3)
  theirs = optax.adamw(
    rate,
    options.b1,
    options.b2,
    options.eps,
    weight_decay=0.1,
    mask={'kernel': True, 'bias': False},
  )
  ours = optimizer.make(settings.optimizer, rate)
  rng = np.random.default_rng(1)
  params, *gradients = (jax.tree.map(np.float32, draw(rng)) for _ in range(4))
  states = [transform.init(params) for transform in (ours, theirs)]
  for gradient in gradients:
    updates = [None, None]
    for n, transform in enumerate((ours, theirs)):
      updates[n], states[n] = transform.update(gradient, states[n], params)
    jax.tree.map(np.testing.assert_array_equal, *updates)
  jax.tree.map(np.testing.assert_array_equal, *map(jax.tree.leaves, states))


@functools.cache
def problem():
  """A small classifier's parameters, and 200 batches with noisy labels."""
  rng = np.random.default_rng(0)
  params = {
    'first': {'kernel': rng.normal(size=(64, 128)) / 8, 'bias': np.zeros(128)},
    'second': {'kernel': rng.normal(size=(128, 40)) / 11, 'bias': np.zeros(40)},
  }
  inputs = rng.normal(size=(200, 64, 64))
  logits = np.sin(inputs) @ (rng.normal(size=(64, 40)) / 4)
  # Noisy: the loss ends far from 0.
  labels = np.argmax(logits + rng.gumbel(size=logits.shape), -1)
  return jax.tree.map(np.float32, params), (np.float32(inputs), labels)


def trained_loss(moments):
  """The mean loss of the last of some hundred steps of a small classifier."""
  settings = test_optimizer.config(moments=moments, b2=0.999)
  transform = optimizer.make(
    settings.optimizer, optax.linear_schedule(1e-2, 1e-3, 200)
  )
  params, batches = problem()

  def loss(params, batch):
    x, labels = batch
    hidden = x @ params['first']['kernel'] + params['first']['bias'][None]
    logits = jax.nn.relu(hidden) @ params['second']['kernel']
    logits += params['second']['bias'][None]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.mean(losses)

  def advance(carry, batch):
    params, state = carry
    value, gradient = jax.value_and_grad(loss)(params, batch)
    updates, state = transform.update(gradient, state, params)
    return (optax.apply_updates(params, updates), state), value

  def train(params, batches):
    carry = params, transform.init(params)
    return jax.lax.scan(advance, carry, batches)[1]

  losses = jax.jit(train)(params, batches)
  assert losses[-100:].mean() < 0.9 * losses[0]
  return float(losses[-100:].mean())


def test_coarser_moments_train_as_well():
  expected = trained_loss('float32')
  for moments in ('bfloat16', 'int8'):
    # Measured: 4e-4 at most.
    assert trained_loss(moments) == pytest.approx(expected, rel=0.002)
