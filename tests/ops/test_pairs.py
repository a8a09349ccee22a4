"""Pairs of steps against the sums that define them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import gla
from rnn_jax.ops import pairs
from tests.support import close

B, L, H, K, P = 2, 7, 2, 4, 3
CLOSE = 2e-6  # measured: 4e-7 of the largest number of each array
ROUNDED = 0.02  # measured: .007, of bfloat16's 8 bits


def draw():
  rng = np.random.default_rng(0)
  shapes = (B, H, K, P), (B, L, H, K), (B, L, H, K), (B, L, H, P)
  return [rng.normal(size=shape) for shape in shapes]


def starts():
  begins = np.zeros((B, L), np.int32)
  begins[0, 0] = begins[1, 3] = begins[1, 5] = 1
  return begins


def stepped(state, q, k, v, begins):
  """The recurrence in float64, one step at a time."""
  state, y = state.copy(), []
  for t in range(L):
    state[begins[:, t] != 0] = 0
    y.append(np.einsum('bhk,bhkp->bhp', q[:, t], state))
    state += np.einsum('bhk,bhp->bhkp', k[:, t], v[:, t])
  return state, np.stack(y, 1)


def summed(q, k, v, weights):
  """The sum over all of a row, in float64."""
  scores = np.einsum('blhk,bmhk->bhlm', q, k)
  if weights == 'softmax':
    scores = np.exp(scores / K**0.5)
    scores /= scores.sum(-1, keepdims=True)
  return np.einsum('bhlm,bmhp->blhp', scores, v)


assert_close = functools.partial(close.check, tolerance=CLOSE, floor=1)


def to_float32(arrays):
  return [np.float32(x) for x in arrays]


@pytest.mark.parametrize(
  ('operands', 'tolerance'), (('float32', CLOSE), ('bfloat16', ROUNDED))
)
def test_past_is_the_recurrence(operands, tolerance):
  given = draw()
  past = jax.jit(pairs.past, static_argnames='operands')
  got = past(*to_float32(given), starts(), operands=operands)
  assert_close(got, stepped(*given, starts()), tolerance=tolerance)
  fresh, y = past(None, *to_float32(given)[1:], starts(), operands=operands)
  assert fresh is None
  assert_close(
    y, stepped(0 * given[0], *given[1:], starts())[1], tolerance=tolerance
  )
  none = past(*to_float32(given))
  assert_close(none, stepped(*given, 0 * starts()))


def test_past_has_the_gradients_of_gla_without_decay():
  given = to_float32(draw())

  def by_gla(state, q, k, v):
    loga = jnp.zeros((B, L, H, 1))
    return gla.recurrence(
      state, q, k, v, loga, starts_BxL=starts(), impl='scan', read='before'
    )

  def of(run):
    @jax.jit
    def gradients(*given):
      out, back = jax.vjp(run, *given)
      return back(jax.tree.map(jnp.cos, out))

    return gradients(*given)

  assert_close(of(lambda *x: pairs.past(*x, starts())), of(by_gla))


@pytest.mark.parametrize('weights', pairs.WEIGHTS)
def test_whole_is_a_sum_over_the_row(weights):
  _, *given = draw()
  got = pairs.whole(*to_float32(given), weights)
  assert_close(got, summed(*given, weights))


def test_shapes_and_weights_are_checked():
  state, q, k, v = to_float32(draw())
  with pytest.raises(ValueError, match='heads .H. is 2'):
    pairs.past(state, q, k, v[:, :, :1])
  with pytest.raises(ValueError, match="weights='relu': choose one of"):
    pairs.whole(q, k, v, 'relu')
