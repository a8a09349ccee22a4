"""SimpleRNN's cell with another recurrence, only for comparison.

    'without_recurrence'   y_t = v_t (g_t . k_t * q_t): elementwise in time
    'unrolled_N'           a scan whose turns are N steps long

The first uses all that the recurrence would read, so that XLA can drop
nothing: what it costs less than SimpleRNN is what the recurrence costs.
Both are of preset 'simple' only.
"""

import jax
import jax.numpy as jnp

from rnn_jax.cells import simple_rnn
from rnn_jax.ops import gla


def cell(name: str) -> type[simple_rnn.Cell]:
  """The class of that name; see the module's docstring."""
  kind, _, number = name.partition('_')
  if kind == 'unrolled':
    return type('Unrolled', (_Unrolled,), {'turn': int(number)})
  return WithoutRecurrence


class WithoutRecurrence(simple_rnn.Cell):
  """All of the cell but its recurrence."""

  def recur(self, state, u, starts_BxL):
    _, (q, k, v, loga) = self.read(state.inputs, u, starts_BxL)
    y = v * jnp.sum(q * k * jnp.exp(loga), -1, keepdims=True)
    return state, y.reshape(*y.shape[:2], -1)


class _Unrolled(simple_rnn.Cell):
  """The recurrence as a scan of unrolled turns."""

  def recur(self, state, u, starts_BxL):
    _, read = self.read(state.inputs, u, starts_BxL)
    by_time = tuple(x.swapaxes(0, 1) for x in read)
    memory, y = jax.lax.scan(
      _step, state.memory_BxHxKxP, by_time, unroll=self.turn
    )
    y = y.swapaxes(0, 1)
    return state._replace(memory_BxHxKxP=memory), y.reshape(*y.shape[:2], -1)


def _step(state, inputs):
  return gla.step(state, *inputs)
