"""Pooling over a text as a recurrence: the pool of all steps so far.

    mean:  c_t = c_{t-1} + 1,  s_t = s_{t-1} + x_t,  y_t = s_t / c_t
    max:   m_t = max(m_{t-1}, x_t),                  y_t = m_t
    last:                                            y_t = x_t

`starts` resets: c, s = 0 and m = -inf before that step. 'concat' is all three,
[last, max, mean] (Howard and Ruder, "Universal Language Model Fine-tuning for
Text Classification", 2018). Everything is float32.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.ops import devices

KINDS = ('mean', 'max', 'last', 'concat')


class State(NamedTuple):
  """Number, sum and maximum of the text's steps so far."""

  count_Bx1: jax.Array
  sum_BxD: jax.Array
  max_BxD: jax.Array


def init_state(B: int, D: int) -> State:
  """Returns the state before a text."""
  return State(jnp.zeros((B, 1)), jnp.zeros((B, D)), jnp.full((B, D), -jnp.inf))


def add_up(
  sum_BxC: jax.Array, x_BxLxC: jax.Array, starts_BxL: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """Returns (sum_BxC, y_BxLxC), the running sum continued over L steps.

  Args:
    sum_BxC: the sum before the first step.
    x_BxLxC: the addends.
    starts_BxL: above 0 where the sum restarts from zero.
  """
  resets = _resets(x_BxLxC, starts_BxL)
  y = _scan(jnp.add, resets, sum_BxC, x_BxLxC.astype(jnp.float32))
  return y[:, -1], y


def pool(
  state: State,
  x_BxLxD: jax.Array,
  kind: str,
  starts_BxL: jax.Array | None = None,
  last_BxLxD: jax.Array | None = None,
) -> tuple[State, jax.Array]:
  """Pools over L steps.

  Args:
    state: of the steps before.
    x_BxLxD: the steps.
    kind: one of KINDS.
    starts_BxL: above 0 where a text begins.
    last_BxLxD: what 'last' is at each step; None: the step.

  Returns:
    (state, y), y is BxLxD, or BxLx3D for 'concat'.

  Raises:
    ValueError: `kind` isn't one of KINDS.
  """
  if kind not in KINDS:
    raise ValueError(f'kind={kind!r}: choose one of {KINDS}')
  x = x_BxLxD.astype(jnp.float32)
  resets = _resets(x, starts_BxL)
  ones = jnp.ones((*x.shape[:2], 1))
  count = _scan(jnp.add, resets, state.count_Bx1, ones)
  total = _scan(jnp.add, resets, state.sum_BxD, x)
  largest = _scan(jnp.maximum, resets, state.max_BxD, x)
  state = State(count[:, -1], total[:, -1], largest[:, -1])
  last = x if last_BxLxD is None else last_BxLxD.astype(jnp.float32)
  pools = {'last': last, 'max': largest, 'mean': total / count}
  if kind == 'concat':
    return state, jnp.concatenate([*pools.values()], -1)
  return state, pools[kind]


def _resets(x, starts_BxL):
  """Returns the steps that reset, Bx(L+1)x1; the first is the state, which
  doesn't."""
  flags = jnp.zeros(x.shape[:2], bool) if starts_BxL is None else starts_BxL > 0
  return jnp.pad(flags, [(0, 0), (1, 0)])[..., None]


def _scan(operator, resets, first, x):
  """Scans `operator` over time from `first` on; drops that step."""

  def combine(a, b):
    reset_a, value_a = a
    reset_b, value_b = b
    value = jnp.where(reset_b, value_b, operator(value_a, value_b))
    return reset_a | reset_b, value

  values = jnp.concatenate([first[:, None], x], 1)
  scan = devices.current().associative_scan
  return scan(combine, (resets, values), axis=1)[1][:, 1:]
