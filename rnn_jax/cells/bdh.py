"""The Dragon Hatchling's layer: attention of many positive, rotated neurons.

    s_h = relu(x E_h)       R_h = rotary(s_h)       a_h = (past of R_h R_h^T) x
    u_h = relu(norm(a_h) G_h)       y = [s_1 * u_1; ...; s_H * u_H] W

without a softmax, a scale or biases; a step sees those before it, not itself.
The recurrent form,

    S_t = S_{t-1} + R_t x_t^T       a_t = S_{t-1}^T R_t

is that of the SimpleRNN with a gate of 1 and q = k, read before the update.
`norm` is LayerNorm without scale and bias. Rotary angles rotate neighbouring
neurons, t base^(-2m/N) for the pair m.

With sees='row' a step sees all of its row and itself, as in an image; then
there is no state, and weights='softmax' is softmax(R R^T / sqrt(N)) instead.

Shapes: x, a BxLxD, s, u BxLxHxK with K = N neurons per head, S BxHxKxD: the
state is large, K D numbers per head. Parameters: 3 H D K.
Source: Kosowski et al., "The Dragon Hatchling: The Missing Link between the
Transformer and Models of the Brain", 2025.
"""

import dataclasses
import functools
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells.parts import by_head
from rnn_jax.ops import devices
from rnn_jax.ops import gla
from rnn_jax.ops import pairs
from rnn_jax.ops import rotary
from rnn_jax.ops.attention import row as row_attention

LOGICAL_AXES = {
  'encoder/kernel': 'DxH',
  'gate/kernel': 'HxDx_',
  'output/kernel': 'HxD',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  heads: int = config_lib.option(4, minimum=1)
  neurons: int = config_lib.option(8192, minimum=1)  # N, per head
  rotary: float = 65_536.0  # base of the angles
  sees: str = 'past'  # or 'row': all of it, the step itself included
  # Or 'softmax', with sees='row'.
  weights: str = config_lib.option('linear', choices=pairs.WEIGHTS)
  dropout: float = config_lib.option(0.0, below=1)  # on s * u

  impls: ClassVar[tuple[str, ...]] = (
    'auto',
    'scan',
    'pairs',
    'chunked',
    'associative',
  )
  multiplying: ClassVar[tuple[str, ...]] = ('chunked',)
  own_states: ClassVar[bool] = True

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.neurons % 2:
      self._refuse('neurons', 'rotary angles rotate pairs: give an even number')
    if self.rotary <= 1:
      self._refuse('rotary', 'give a number above 1')
    base.check_sight(self.sees, config)
    if self.weights != 'linear' and self.sees == 'past':
      self._refuse(
        'weights', "it has no recurrent form: give 'linear', or sees='row'"
      )
    super().check(config)
    every, impl = config.remat.every, config.recurrence.impl
    if every not in (0, 'auto') and impl != 'scan':  # 'auto' is resolved later
      raise errors.InputError(
        f'remat.every={every!r}: model.cell={config.model.cell!r} under '
        f"recurrence.impl={impl!r} chooses its own kept states: use 'scan', "
        'recurrence.chunk_length, or remat.every=0'
      )
    if impl == 'pairs' and config.mesh.sequence != 1:
      raise errors.InputError(
        "recurrence.impl='pairs' needs a whole row on one device, and "
        f"mesh.sequence={config.mesh.sequence}: give 'auto'"
      )

  @property
  def available_impls(self) -> tuple[str, ...]:
    if self.sees == 'past':
      return self.impls
    # There are no steps to scan: 'scan' is 'auto'.
    return ('scan', *row_attention.IMPLS[self.weights])


class State(NamedTuple):
  """The state between two steps; None where a step sees its row.

  A `fresh` plan has no memory before or after a row.
  """

  memory_BxHxKxD: jax.Array | None
  steps_B: jax.Array  # of the document so far


class Projected(NamedTuple):
  """The neurons and the input itself."""

  s_BxLxHxK: jax.Array
  x_BxLxD: jax.Array


Outputs = tuple[jax.Array, jax.Array]  # (a_BxLxHxD, s_BxLxHxK)


class Cell(base.ParallelCell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config = self.config
    self.encoder = self.dense(
      config.heads * config.neurons,
      use_bias=False,
      kernel_init=functools.partial(_init_concatenated, heads=config.heads),
    )
    self.norm = nn.LayerNorm(
      epsilon=1e-5,
      use_bias=False,
      use_scale=False,
      dtype=self.policy.activations,
    )
    self.gate = by_head.Dense(config.neurons, self.policy)
    self.output = self.xavier(self.width)
    self.drop = nn.Dropout(config.dropout)

  @property
  def _sees_row(self):
    return self.config.sees == 'row'

  def init_state(self, B: int) -> State | None:
    if self._sees_row:
      return None
    config = self.config
    shape = (B, config.heads, config.neurons, self.inputs or self.width)
    memory = jnp.zeros(shape, self.policy.states) if self._keeps else None
    return State(memory, jnp.zeros(B))

  def state_axes(self) -> State | None:
    if self._sees_row:
      return None
    return State._make(['BxHx_xD' if self._keeps else None, 'B'])

  @property
  def _keeps(self):
    """Whether there is a memory: a scan always needs one."""
    return not self.plan.fresh or self.plan.impl == 'scan'

  def project(self, x_BxLxD: jax.Array) -> Projected:
    s = nn.relu(self.encoder(x_BxLxD))
    s = s.reshape(*s.shape[:2], self.config.heads, -1)
    return Projected(s, x_BxLxD)

  def units(self, u: Projected) -> jax.Array:
    return u.s_BxLxHxK

  def _chosen(self, u):
    """The impl of 'auto': for short rows, pairs are cheapest."""
    length, width = u.x_BxLxD.shape[1:]
    neurons = self.config.neurons
    break_even = 2 * neurons * width / (neurons + width)
    short = length <= break_even + (self.plan.chunk_length or gla.CHUNK)
    return (
      'pairs' if short and devices.current().time_shards == 1 else 'chunked'
    )

  def advance(
    self,
    state: State | None,
    u: Projected,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[State | None, Outputs]:
    s, x = u
    B, L, heads, _ = s.shape
    v = jnp.broadcast_to(x[:, :, None], (B, L, heads, x.shape[-1]))
    if state is None:
      base.check_one_document(starts_BxL)
      r = self._rotated(
        s, rotary.table(L, s.shape[-1] // 2, self.config.rotary)
      )
      options = row_attention.Options(
        self.config.weights,
        'auto' if self.plan.impl == 'scan' else self.plan.impl,
        operands=self.policy.operands,
      )
      a = row_attention.attend(r, r, v, options)
      return state, (a.astype(x.dtype), s)
    steps = jax.lax.stop_gradient(state.steps_B).astype(jnp.int32)
    steps, position_BxL = devices.current().count(steps, L, starts_BxL)
    half, turns = s.shape[-1] // 2, self.config.rotary
    r = self._rotated(s, rotary.angles(position_BxL, half, turns))
    impl = self._chosen(u) if impl == 'auto' else impl
    memory, a = self._read_past(state.memory_BxHxKxD, r, v, starts_BxL, impl)
    state = State(memory, steps.astype(jnp.float32))
    return state, (a.astype(x.dtype), s)

  def _read_past(self, memory, r, v, starts_BxL, impl):
    """Returns (the memory after the row, a_BxLxHxD)."""
    if impl == 'pairs':
      operands = self.policy.operands
      return pairs.past(memory, r, r, v, starts_BxL, operands)
    B, L, heads, neurons = r.shape
    keeps = memory is not None
    if memory is None:
      memory = jnp.zeros((B, heads, neurons, v.shape[-1]))
    memory, a = devices.current().recurrence(
      memory,
      r,
      r,
      v,
      jnp.zeros((B, L, heads, 1)),
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.plan.chunk_length,
      operands=self.policy.of_recurrence(impl),
      read='before',
    )
    return (memory if keeps else None), a

  def _rotated(self, s, angles):
    return rotary.rotate_neighbours(s, *angles).astype(s.dtype)

  def emit(self, y: Outputs) -> jax.Array:
    a, s = y
    z = s * nn.relu(self.gate(self.norm(a)))
    z = self.drop(z, deterministic=not self.has_rng('dropout'))
    return self.output(z.reshape(*z.shape[:2], -1))


def _init_concatenated(key, shape, dtype=jnp.float32, *, heads):
  """Draws concatenated matrices, each within Xavier's limits, DxHK."""
  width, columns = shape
  each = by_head.init_each(key, (heads, width, columns // heads), dtype)
  return each.swapaxes(0, 1).reshape(shape)
