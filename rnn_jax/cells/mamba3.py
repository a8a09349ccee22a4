"""Mamba-3: a state space model with the trapezoidal rule and rotating keys.

    [g, v, k, q, d, r, l, z] = W x
    dt = softplus(d + b_dt)      a = exp(-dt softplus(r))      m = sigmoid(l)
    k <- rms_norm(k) * s_k + b_k             q <- rms_norm(q) * s_q + b_q
    p_t = p_{t-1} + dt_t tanh(z_t) / 2       k, q rotated by p_t turns

    S' = a_t (S_{t-1} + (1 - m_t) dt_t k_{t-1} v_{t-1}^T)
    S_t = S' + m_t dt_t k_t v_t^T
    o_t = S_t^T q_t + D_h v_t                y = W_o [o * silu(g)]

k and q are B and C in the paper. The input is integrated over a step by the
trapezoidal rule, with the weight m at the step's end; m = 1 is Mamba-2's rule.
Pairs of neighbouring key channels, `angles` of them, rotate, each by its own
angle: the state is that of a complex state space model. There is no short
convolution. The heads of a group share k, q, z and s; b, dt, r and m are of
each head. With `output_norm` it is rms_norm(o) * silu(g), of each head. Devices
that share heads have whole groups.

With `mimo_rank` R above 1 it is the MIMO form, of R inputs and R outputs: a
state gets the sum of R products and is read by R queries. R keys and queries
are projected, each with a bias of its own; values and gates are one value and
one gate times a weight of each input and channel, and a third such weight adds
the outputs up:

    v_r = u_r v        g_r = e_r g        k v^T = sum_r k_r v_r^T
    o_r = S_t^T q_r + D_h v_r             y = W_o sum_r w_r [o_r * silu(g_r)]

It is the recurrence of ops/gla, or of parts/mimo, one step late: with
c_t = m_t dt_t,

    J_t = a_t J_{t-1} + a_t (c_{t-1} + (1 - m_t) dt_t) k_{t-1} v_{t-1}^T
    S_t = J_t + c_t k_t v_t^T

where S before the first step of a call has its c k v^T already, so there c = 0.

Shapes: v, g BxLxHxP, q, k BxLxGx(RK) and z BxLxGxA of G groups, o BxLxHx(RP), p
BxLxHxA, dt, a, m BxLxH, u, e, w Hx(RP); the state is S, BxHxKxP, and p, k and v
of the last step.
Source: Lahoti et al., "Mamba-3: Improved Sequence Modeling using State Space
Principles", 2026.
"""

import dataclasses
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import grouped
from rnn_jax.cells.parts import in_turn
from rnn_jax.cells.parts import matrix
from rnn_jax.cells.parts import mimo
from rnn_jax.ops import devices
from rnn_jax.ops import rotary

LOGICAL_AXES = matrix.LOGICAL_AXES | {
  'key_scale': 'Hx_',
  'query_scale': 'Hx_',
  'key_bias': 'Hx_',
  'query_bias': 'Hx_',
  'dt_bias': 'H',
  'skip': 'H',
  'mimo_*': 'Hx_',
  'norm/scale': 'Hx_',
}
SLOWEST = 1e-4  # softplus(r) is never below it


@dataclasses.dataclass(frozen=True)
class Config(grouped.Config):
  """Options of the cell, section `cell` of a config."""

  # Pairs of key channels that rotate; 0: half of the channels.
  angles: int = config_lib.option(0, minimum=0)
  mimo_rank: int = config_lib.option(1, minimum=1)  # R: inputs and outputs
  output_norm: bool = False
  norm_scale: bool = config_lib.option(False, needs='cell.output_norm')

  excludes: ClassVar[tuple[str, ...]] = ('mesh.sequence!=1',)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.key_width < 2:
      self._refuse('key_width', 'give 2 or more: pairs of them rotate')
    if 2 * self.angles > self.key_width:
      self._refuse('angles', f'give up to {self.key_width // 2}')
    super().check(config)

  @property
  def rotations(self) -> int:
    """A: the angles of a group."""
    return self.angles or max(1, self.key_width // 4)

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one group's projection."""
    heads = self.heads // self.groups
    return {
      'output_gate': heads * self.value_width,
      'value': heads * self.value_width,
      'key': self.mimo_rank * self.key_width,
      'query': self.mimo_rank * self.key_width,
      'dt': heads,
      'rate': heads,
      'new': heads,
      'angle': self.rotations,
    }


class Last(NamedTuple):
  """What the next step needs of the last one."""

  turns_BxHxA: jax.Array
  k_BxHxK: jax.Array  # of all inputs, BxHx(R K)
  v_BxHxP: jax.Array


class _Read(NamedTuple):
  """The inputs of the recurrence, one step late, and what S_t adds to J_t."""

  late: matrix.Channels  # of parts/mimo
  v_BxRLxHxP: jax.Array
  own: mimo.Scores  # c k . q
  key_BxRxHxK: jax.Array  # c k of the last step


class Cell(matrix.Cell):
  """The cell; see the module's docstring. `extra` is Last."""

  def setup(self) -> None:
    super().setup()
    config, ones = self.config, nn.initializers.ones
    each = config.groups, config.key_width
    self.scales = tuple(
      self.param(f'{name}_scale', ones, each) for name in ('key', 'query')
    )
    each = config.heads, config.mimo_rank * config.key_width
    self.biases = tuple(
      self.param(f'{name}_bias', ones, each) for name in ('key', 'query')
    )
    if (rank := config.mimo_rank) > 1:
      each = config.heads, rank * config.value_width
      mean = nn.initializers.constant(1 / rank)
      self.mimo_value = self.param('mimo_value', mean, each)
      self.mimo_gate = self.param('mimo_gate', ones, each)
      self.mimo_output = self.param('mimo_output', mean, each)
    self.dt_bias = self.param('dt_bias', matrix.init_steps, (config.heads,))
    self.skip = self.param('skip', ones, (config.heads,))

  @property
  def units_per_step(self) -> int:
    return self.config.groups

  def init_extra(self, B: int) -> Last:
    config = self.config
    keys = config.mimo_rank * config.key_width
    widths = config.rotations, keys, config.value_width
    return Last(*(jnp.zeros((B, config.heads, width)) for width in widths))

  def extra_axes(self) -> Last:
    return Last._make(3 * ('BxH',))

  def read(
    self, extra: Last, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[Last, _Read]:
    dt, loga, new = self._rates(parts)
    turn = dt[..., None] * jnp.tanh(self._of_heads(parts['angle'])) / 2
    turns = _add_up(extra.turns_BxHxA, turn, starts_BxL)
    k, q = self._keys_and_queries(parts)
    R, one_v = self.config.mimo_rank, parts['value'].reshape(*dt.shape, -1)
    v, weight = self._of_inputs(one_v, 'value'), new * dt
    weights = in_turn.repeat(weight, R)
    own = mimo.scores(q, k, R, range(1 - R, R), weights)
    angle = 2 * jnp.pi * in_turn.repeat(turns, R)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    k, q = (rotary.rotate_neighbours(x, cos, sin) for x in (k, q))
    write = _late(jnp.zeros_like(weight[:, 0]), weight) + (1 - new) * dt
    if starts_BxL is not None:  # nothing of another document
      write = jnp.where(starts_BxL[..., None] != 0, 0.0, write)
    write = (jnp.exp(loga) * write)[..., None]
    flat = in_turn.together(k, R)
    late_k = write * _late(extra.k_BxHxK, flat)
    late = matrix.Channels(
      q.astype(v.dtype),
      in_turn.each(late_k, R).astype(v.dtype),
      self._of_inputs(_late(extra.v_BxHxP, one_v), 'value'),
      loga[..., None],
    )
    last = Last(turns[:, -1], flat[:, -1], one_v[:, -1].astype(jnp.float32))
    return last, _Read(late, v, own, weights[:, -R:, :, None] * k[:, -R:])

  def _rates(self, parts):
    """Returns dt, log a and m, BxLxH."""
    step, rate, new = (
      parts[name].astype(jnp.float32).reshape(*parts[name].shape[:2], -1)
      for name in ('dt', 'rate', 'new')
    )
    dt = jax.nn.softplus(step + self.dt_bias[None, None])
    loga = -dt * jnp.maximum(jax.nn.softplus(rate), SLOWEST)
    return dt, loga, jax.nn.sigmoid(new)

  def _keys_and_queries(self, parts):
    """Returns k and q before their rotation, BxRLxHxK in float32."""
    made, R = [], self.config.mimo_rank
    names = 'key', 'query'
    for name, scale, bias in zip(names, self.scales, self.biases, strict=True):
      x = in_turn.each(parts[name].astype(jnp.float32), R)
      square = jnp.mean(x * x, -1, keepdims=True)
      x = x * jax.lax.rsqrt(square + self.config.norm_epsilon)
      x = in_turn.together(self._of_heads(x * scale[None, None]), R)
      made.append(in_turn.each(x + bias[None, None], R))
    return made

  def _of_inputs(self, x_BxLxHxP, name):
    """Returns the value or the gate of each of the R inputs, BxRLxHxP."""
    if (R := self.config.mimo_rank) == 1:
      return x_BxLxHxP
    weights = getattr(self, f'mimo_{name}')[None, None]
    x = jnp.concatenate([x_BxLxHxP] * R, -1) * weights
    return in_turn.each(x.astype(x_BxLxHxP.dtype), R)

  def _of_heads(self, x_BxLxGxC):
    """Returns x of each head, in float32, from that of each group."""
    heads = self.config.heads // self.config.groups
    return jnp.repeat(x_BxLxGxC.astype(jnp.float32), heads, 2)

  @property
  def chunk_length(self) -> int | None:
    return matrix.chunk_length(self.plan, self.config.mimo_rank)

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: _Read,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    R, v = self.config.mimo_rank, read.v_BxRLxHxP
    memory, o = mimo.recurrence(
      super().run, R, memory_BxHxKxP, read.late, starts_BxL, impl
    )
    last = v[:, -R:].astype(jnp.float32)
    for r in range(R):
      key = read.key_BxRxHxK[:, r]
      memory = memory + key[..., None] * last[:, r, :, None]
    return memory, o + mimo.read(read.own, v, R).astype(o.dtype)

  def finish(
    self,
    o_BxRLxHxP: jax.Array,
    parts: matrix.Parts,
    read: _Read,
    extra: Last,
  ) -> jax.Array:
    del extra
    R = self.config.mimo_rank
    o = o_BxRLxHxP + self.skip[None, None, :, None] * read.v_BxRLxHxP
    B, _, H, P = o.shape
    gate = parts['output_gate'].reshape(B, -1, H, P)
    gate = nn.silu(self._of_inputs(gate, 'gate'))
    o = self.gated(o, gate) if self.config.output_norm else o * gate
    if R == 1:
      return o
    o = in_turn.together(o, R) * self.mimo_output[None, None]
    return jnp.sum(o.reshape(B, -1, H, R, P), 3)

  def gates(self, state: matrix.State, u: matrix.Parts) -> base.Gates:
    parts = matrix.at_one_step(u)
    _, loga, new = (x[:, 0, :, None] for x in self._rates(parts))
    return base.Gates({'keep': jnp.exp(loga), 'new': new}, loga)


def _late(first_BxHxC, x_BxLxHxC):
  """Returns x of the step before each, from that before the first."""
  first = first_BxHxC[:, None].astype(x_BxLxHxC.dtype)
  return jnp.concatenate([first, x_BxLxHxC[:, :-1]], 1)


def _add_up(turns_BxHxA, turn_BxLxHxA, starts_BxL):
  """Returns the turns after each step, less whole ones: log L rounds."""
  if starts_BxL is None:
    starts_BxL = jnp.zeros(turn_BxLxHxA.shape[:2], bool)
  starts = (starts_BxL != 0)[..., None, None]

  def wrap(turns):  # to -.5 to .5, where float32 has the most digits
    return turns - jnp.floor(turns + 0.5)

  def compose(first, second):
    (start_1, turns_1), (start_2, turns_2) = first, second
    turns = jnp.where(start_2, turns_2, turns_1 + turns_2)
    return start_1 | start_2, wrap(turns)

  before = jnp.where(starts[:, 0], 0.0, turns_BxHxA)
  first = turn_BxLxHxA[:, :1] + before[:, None]
  turn = wrap(jnp.concatenate([first, turn_BxLxHxA[:, 1:]], 1))
  scan = devices.current().associative_scan
  return scan(compose, (starts, turn), axis=1)[1]
