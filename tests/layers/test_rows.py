"""Padded, packed and reversed rows against single steps, row by row."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax import layers
from tests.support import close
from tests.support import draws

B, L, D, F = 4, 6, 3, 4
LAYERS = {
  'lstm': layers.LSTM(F),
  'qrnn': layers.QRNN(F, taps=3),
  'simple_rnn': layers.SimpleRNN(F, heads=2, key_width=3),
}
LENGTHS = np.array([6, 3, 1, 0], np.int32)
STARTS = np.zeros((B, L), np.int32)
STARTS[0, [0, 2]] = 1
STARTS[1, [1, 4]] = 1  # one is in the padding
CLOSE = 3e-6  # measured: 6e-7
# Attention and QRNN pass too; each takes seconds to compile.
MAIN = pytest.mark.parametrize('name', ('lstm', 'simple_rnn'))


@functools.cache
def example(name):
  """Parameters, a state that isn't zero, and x with NaN at the padding."""
  layer = LAYERS[name]
  before, x = draws.normal(2, B, L, D)
  variables = draws.parameters(layer.init, x[:, :1])
  state = layer.init_state(B, D)
  state, _ = jax.jit(functools.partial(layer.apply, method='step'))(
    variables, state, before[:, 0]
  )
  padding = np.arange(L) >= LENGTHS[:, None]
  return variables, state, x, jnp.where(padding[..., None], jnp.nan, x)


@functools.cache
def one_step(name):
  apply = functools.partial(LAYERS[name].apply, example(name)[0])
  return jax.jit(functools.partial(apply, method='step'))


def by_steps(name, state, x, lengths, starts, reverse):
  """Runs each row by itself, one step at a time. Returns (state, y)."""
  zeros, states = LAYERS[name].init_state(1, D), []
  y = np.zeros((B, L, F), np.float32)
  for b in range(B):
    now = zeros
    if state is not None:
      now = jax.tree.map(lambda leaf, b=b: leaf[b : b + 1], state)
    order = range(lengths[b])
    for t in reversed(order) if reverse else order:
      # Read backward, a document starts with its last step.
      begins = t + 1 if reverse else t
      if begins < lengths[b] and starts[b, begins]:
        now = zeros
      now, out = one_step(name)(now, x[b : b + 1, t])
      y[b, t] = out[0]
    states.append(now)
  return jax.tree.map(lambda *leaves: np.concatenate(leaves), *states), y


assert_close = functools.partial(close.check, tolerance=CLOSE, floor=1)


@pytest.mark.parametrize(
  ('name', 'reverse'), (('lstm', False), ('simple_rnn', True))
)
def test_rows_equal_their_steps(name, reverse):
  variables, state, x, padded = example(name)
  layer = LAYERS[name].clone(reverse=reverse)

  @jax.jit
  def run(variables, state, x, padded, lengths, starts):
    scan = functools.partial(layer.apply, variables, method='scan')
    return {
      'plain': scan(None, x),
      'packed': scan(state, x, starts=starts),
      'padded': scan(None, padded, lengths=lengths),
      'both': scan(None, padded, lengths=lengths, starts=starts),
      'held': scan(state, padded, lengths=lengths, starts=starts),
    }, layer.apply(variables, padded, lengths=lengths, starts=starts)

  got, y = run(variables, state, x, padded, LENGTHS, STARTS)
  whole, none = np.full(B, L), np.zeros_like(STARTS)
  want = {
    'plain': (None, whole, none),
    'packed': (state, whole, STARTS),
    'padded': (None, LENGTHS, none),
    'both': (None, LENGTHS, STARTS),
    'held': (state, LENGTHS, STARTS),
  }
  for kind, (first, lengths, starts) in want.items():
    assert_close(got[kind], by_steps(name, first, x, lengths, starts, reverse))
  assert_close(y, got['both'][1])


@MAIN
def test_padding_reaches_no_gradient(name):
  variables, _, x, padded = example(name)
  layer = LAYERS[name]

  @jax.jit
  @jax.grad
  def gradient(variables, x):
    state, y = layer.apply(variables, None, x, lengths=LENGTHS, method='scan')
    return sum(jnp.sin(leaf).sum() for leaf in jax.tree.leaves((state, y)))

  got = gradient(variables, padded)
  assert_close(got, gradient(variables, x))
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(got))


def test_bidirectional_is_both_directions():
  layer = layers.Bidirectional(LAYERS['lstm'])
  _, _, x, padded = example('lstm')
  variables = draws.parameters(layer.init, x)
  halves = [variables['params'][name] for name in ('forward', 'backward')]
  flipped = flip_by_hand(x)

  @jax.jit
  def run(variables, halves, x, padded, flipped):
    both = functools.partial(
      layer.apply, variables, lengths=LENGTHS, method='scan'
    )
    one = [
      LAYERS['lstm'].apply(
        {'params': half}, None, x, lengths=LENGTHS, method='scan'
      )
      for half, x in zip(halves, (x, flipped), strict=True)
    ]
    total = layer.clone(merge='sum').apply(variables, padded, lengths=LENGTHS)
    return both(None, padded), both(layer.init_state(B), padded), one, total

  got, from_zeros, one, total = run(variables, halves, x, padded, flipped)
  (first, y_forward), (second, y_backward) = one
  y_backward = flip_by_hand(y_backward)
  want = np.concatenate([y_forward, y_backward], -1)
  assert_close(got, ((first, second), want))
  assert_close(from_zeros, got)
  assert_close(total, y_forward + y_backward)


def flip_by_hand(x):
  """Returns x with the real steps of each row in reverse order."""
  x = np.array(x)
  for row, n in zip(x, LENGTHS, strict=True):
    row[:n] = row[:n][::-1]
  return x


@pytest.mark.parametrize(
  ('options', 'message'),
  (
    ({'merge': 'mean'}, r"merge='mean': choose one of \('concat', 'sum'\)"),
    ({'layer': layers.LSTM(F, reverse=True)}, 'layer.reverse=True: give a lay'),
  ),
)
def test_bad_options_of_bidirectional_are_refused(options, message):
  layer = layers.Bidirectional(**{'layer': LAYERS['lstm'], **options})
  with pytest.raises(errors.InputError, match=message):
    jax.eval_shape(layer.init, jax.random.key(0), jnp.zeros((B, L, D)))


def test_lists_are_arrays():
  y, n = draws.normal(B, L, F), np.asarray(LENGTHS).tolist()
  got = layers.last(y.tolist(), n)
  np.testing.assert_array_equal(got, layers.last(y, LENGTHS))
  with pytest.raises(errors.InputError, match='lengths=.*give an array of num'):
    layers.last(y, ['one', *n[1:]])


def test_last_reads_the_last_real_step():
  y = draws.normal(B, L, F)
  np.testing.assert_array_equal(layers.last(y), y[:, -1])
  got = layers.last(y, LENGTHS)
  np.testing.assert_array_equal(got[:3], y[[0, 1, 2], [5, 2, 0]])
  assert not got[3].any()


@pytest.mark.parametrize(
  ('x', 'given', 'message'),
  (
    ((B, D), {}, r'x.shape=\(4, 3\): give BxLxD'),
    ((B, 0, D), {}, r'x.shape=\(4, 0, 3\): give BxLxD'),
    ('int32', {}, "x.dtype='int32': give vectors, as nn.Embed makes"),
    ((B, L, D), {'lengths': np.ones(3, int)}, r'lengths.shape=\(3,\): give'),
    ((B, L, D), {'lengths': np.ones(B)}, "lengths.dtype='float"),
    ((B, L, D), {'starts': np.ones((B, 2), int)}, r'starts.shape=\(4, 2\): g'),
  ),
)
def test_arrays_that_do_not_fit_are_refused(x, given, message):
  x = np.zeros((B, L, D), x) if isinstance(x, str) else np.zeros(x, np.float32)
  with pytest.raises(errors.InputError, match=message):
    layers.LSTM(F).init(jax.random.key(0), jnp.asarray(x), **given)


def test_a_state_of_other_shapes_is_refused():
  variables, _, x, _ = example('qrnn')
  layer = LAYERS['qrnn']
  with pytest.raises(errors.InputError, match=r'state=.*those of init_state'):
    layer.apply(variables, layer.init_state(B), x, method='scan')
  with pytest.raises(errors.InputError, match=r'x.shape=.*give BxD; `scan`'):
    layer.apply(variables, None, x, method='step')


def test_a_padded_state_runs_in_no_named_form_but_scan():
  variables, state, x, _ = example('qrnn')
  layer = LAYERS['qrnn'].clone(impl='chunked')
  message = "impl='chunked': a state and lengths together need single steps"
  with pytest.raises(errors.InputError, match=message):
    layer.apply(variables, state, x, lengths=LENGTHS, method='scan')
