"""RWKV-7 ("Goose"): a state that each step corrects by a general rank one.

With x' the input one step earlier and x_j = x + (x' - x) * m_j for each of j =
r, w, k, v, a, g (token shift), in each head:

    r = W_r x_r    k = W_k x_k    v = W_v x_v    a = sigmoid(a_0 + A_2 A_1 x_a)
    w = exp(-e^-1/2 sigmoid(w_0 + D_2 tanh(D_1 x_w)))
    g = G_2 sigmoid(G_1 x_g)
    n = k * s / |k * s|    k <- k * (1 + (a - 1) * t)

    S_t = (diag(w_t) - (a_t * n_t) n_t^T) S_{t-1} + k_t v_t^T
    o_t = S_t^T r_t
    y = W_o [(layer_norm(o) + (r . (u * k)) v) * g]

The correction reads the state before its decay. A_1, D_1 and G_1 have `rank`
rows of each head, or as many as an option of their own says, rather than one
set of rows for all of them, so that heads can be sharded. The published model
has one set, with `shared_gate`, and each layer after the first mixes its values
with v', those of the first, with `value_residual`:

    v <- v + (v' - v) * sigmoid(b_0 + B_2 B_1 x_v)

The first layer has such matrices too, so that layers are alike: there v' is v,
which they don't change. v' goes from layer to layer beside x. The other half of
the published model is the block's MLP, model.mlp='channel_mix'.

Shapes: r, w, k, a BxLxHxK, v, v', g, o BxLxHxP, the state BxHxKxP and the input
of one step, Bx1xD.
Source: Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution",
2025.
"""

import dataclasses
import math
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import by_head
from rnn_jax.cells.parts import delta as delta_parts
from rnn_jax.ops import delta
from rnn_jax.ops import devices

PyTree = Any

# The parts of x, and the power by which their share of x' grows over channels.
SHIFTS = {'r': 0.2, 'w': 0.9, 'k': 0.7, 'v': 0.7, 'a': 0.9, 'g': 0.2}
MIX = 'mix'  # the low-rank map of values to v'
SLOWEST = math.exp(-0.5)  # a decay is never below exp of minus this
LOGICAL_AXES = {
  'shift': '_xD',
  'projections_*/kernel': 'DxH',
  'up_*': 'Hx_x_',
  'decay_bias': 'Hx_',
  'rate_bias': 'Hx_',
  'mix_bias': 'Hx_',
  'key_scale': 'Hx_',
  'key_rate': 'Hx_',
  'bonus': 'Hx_',
  'norm_scale': 'Hx_',
  'norm_bias': 'Hx_',
  'output/kernel': 'HxD',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  heads: int = config_lib.option(4, minimum=1)
  key_width: int = config_lib.option(16, minimum=1)
  value_width: int = config_lib.option(48, minimum=1)
  # Of a head's decays, and of what has 0 below.
  rank: int = config_lib.option(16, minimum=1)
  rate_rank: int = config_lib.option(0, minimum=0)  # of the rates a
  gate_rank: int = config_lib.option(0, minimum=0)  # of the output gates
  # Of what mixes values with those of the first layer.
  value_rank: int = config_lib.option(0, minimum=0, needs='cell.value_residual')
  # One set of such rows for all heads.
  shared_gate: bool = config_lib.option(False, excludes='mesh.tensor!=1')
  # Values are mixed with the first layer's.
  value_residual: bool = config_lib.option(
    False, excludes=('model.layers=1', 'mesh.pipe!=1')
  )
  # Added to the variance of a head's outputs.
  norm_epsilon: float = config_lib.option(64e-5, above=0)
  # Added to the squared length of a head's keys.
  key_epsilon: float = config_lib.option(delta_parts.EPSILON, above=0)
  # On the gated outputs of the recurrence.
  dropout: float = config_lib.option(0.0, below=1)

  impls: ClassVar[tuple[str, ...]] = delta_parts.IMPLS
  multiplying: ClassVar[tuple[str, ...]] = delta.MULTIPLYING
  own_states: ClassVar[bool] = True
  excludes: ClassVar[tuple[str, ...]] = ('mesh.sequence!=1',)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    base.check_inputs(config)

  @property
  def ranks(self) -> dict[str, int]:
    """The ranks of the maps, by the part that a map computes."""
    ranks = {
      'w': self.rank,
      'a': self.rate_rank or self.rank,
      'g': self.gate_rank or self.rank,
    }
    if self.value_residual:
      ranks[MIX] = self.value_rank or self.rank
    return ranks


class State(NamedTuple):
  """The state between two steps."""

  memory_BxHxKxP: jax.Array
  input_Bx1xD: jax.Array


class First(NamedTuple):
  """What goes from layer to layer beside x."""

  values_BxLxHxP: jax.Array  # v', after the first layer
  ran_BxL: jax.Array  # whether that has run, 0 or 1


class _Read(NamedTuple):
  """What the recurrence and the output read, BxLxHx_ each."""

  r: jax.Array
  k: jax.Array
  v: jax.Array
  loga: jax.Array
  n: jax.Array
  a: jax.Array
  g: jax.Array
  mix: jax.Array | None  # how much of the first layer's values v gets


class Cell(base.ParallelCell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config, constant = self.config, nn.initializers.constant
    H, K, P = config.heads, config.key_width, config.value_width
    sets = 1 if config.shared_gate else H  # of rows of the low-rank maps
    widths = {'r': H * K, 'k': H * K, 'v': H * P}
    widths |= {name: sets * rank for name, rank in config.ranks.items()}
    self.projections = {
      name: self.xavier(width) for name, width in widths.items()
    }
    up = nn.initializers.lecun_normal(batch_axis=0)
    outputs = {'w': K, 'a': K, 'g': P, MIX: P}
    self.up = {
      name: self.param(f'up_{name}', up, (H, rank, outputs[name]))
      for name, rank in config.ranks.items()
    }
    if config.value_residual:
      self.mix_bias = self.param('mix_bias', constant(0.73), (H, P))
    self.shift = self.param('shift', _init_shift, (len(SHIFTS), self._inputs))
    self.decay_bias = self.param('decay_bias', _init_decay, (H, K))
    self.rate_bias = self.param('rate_bias', constant(-0.19), (H, K))
    self.key_scale = self.param('key_scale', constant(0.71), (H, K))
    self.key_rate = self.param('key_rate', constant(1.02), (H, K))
    self.bonus = self.param('bonus', constant(-0.04), (H, K))
    self.norm_scale = self.param('norm_scale', nn.initializers.ones, (H, P))
    self.norm_bias = self.param('norm_bias', nn.initializers.zeros, (H, P))
    self.output = self.xavier(self.width)
    self.drop = nn.Dropout(config.dropout)

  @property
  def _inputs(self):
    return self.inputs or self.width

  def init_state(self, B: int) -> State:
    config = self.config
    shape = (B, config.heads, config.key_width, config.value_width)
    memory = jnp.zeros(shape, self.policy.states)
    return State(memory, jnp.zeros((B, 1, self._inputs)))

  def state_axes(self) -> State:
    return State('BxH', 'B')  # type: ignore[arg-type]

  def beside(self, B: int, L: int) -> First | None:
    config, dtype = self.config, self.policy.activations
    if not config.value_residual:
      return None
    shape = B, L, config.heads, config.value_width
    return First(jnp.zeros(shape, dtype), jnp.zeros((B, L), dtype))

  def project(self, x_BxLxD: PyTree) -> PyTree:
    return x_BxLxD  # what is projected reads earlier inputs from the state

  def gates(self, state: State, u: PyTree) -> base.Gates:
    x = u[0] if self.config.value_residual else u
    _, read = self._read(state.input_Bx1xD, x[:, None], None)
    loga, rate = read.loga[:, 0], read.a[:, 0]
    return base.Gates({'keep': jnp.exp(loga), 'write': rate}, loga)

  def advance(
    self, state: State, u: PyTree, starts_BxL: jax.Array | None, impl: str
  ) -> tuple[State, PyTree]:
    x, first = u if self.config.value_residual else (u, None)
    before, read = self._read(state.input_Bx1xD, x, starts_BxL)
    if first is not None:
      first = self._first(first, read.v)
      v = first.values_BxLxHxP.astype(jnp.float32)
      read = read._replace(v=read.v + (v - read.v) * read.mix)
    memory, o = delta.general_recurrence(
      state.memory_BxHxKxP,
      read.r,
      read.k,
      read.v,
      read.loga,
      -read.n,
      read.n * read.a,
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=delta_parts.chunk_length(self.plan),
      operands=self.policy.of_recurrence(impl),
    )
    y = self._norm(o.astype(jnp.float32))
    own = jnp.sum(read.r * self.bonus[None, None] * read.k, -1, keepdims=True)
    y = ((y + own * read.v) * read.g).astype(self.policy.activations)
    state = State(memory, before.astype(jnp.float32))
    y = y.reshape(*y.shape[:2], -1)
    return state, y if first is None else (y, first)

  def _first(self, first, v):
    """Returns the First after a layer whose values are v."""
    values = jnp.where(
      first.ran_BxL[..., None, None] != 0,
      first.values_BxLxHxP,
      v.astype(first.values_BxLxHxP.dtype),
    )
    return First(values, jnp.ones_like(first.ran_BxL))

  def _read(self, before_Bx1xD, x_BxLxD, starts_BxL):
    """Returns (the input for the next step, _Read in float32)."""
    before, x_BxLx2xD = devices.current().windows(
      before_Bx1xD, x_BxLxD, 2, starts_BxL
    )
    change = x_BxLx2xD[:, :, 1] - x_BxLxD
    shift = self.shift.astype(x_BxLxD.dtype)
    if devices.current().shards('H') > 1:  # each device's heads read all of it
      shift = devices.current().tp_copy(shift)
    raw = {}
    for n, name in enumerate(SHIFTS):
      x = x_BxLxD + change * shift[n, None, None]
      raw[name] = self._project(name, x)
      if name == 'v' and self.config.value_residual:
        raw[MIX] = self._project(MIX, x)
    w = by_head.product(jnp.tanh(raw['w']), self.up['w'])
    loga = -SLOWEST * jax.nn.sigmoid(w + self.decay_bias[None, None])
    a = by_head.product(raw['a'], self.up['a'])
    a = jax.nn.sigmoid(a + self.rate_bias[None, None])
    g = by_head.product(jax.nn.sigmoid(raw['g']), self.up['g'])
    n = raw['k'] * self.key_scale[None, None]
    n = delta_parts.unit(n, self.config.key_epsilon)
    k = raw['k'] * (1 + (a - 1) * self.key_rate[None, None])
    mix = None
    if MIX in raw:
      mix = by_head.product(raw[MIX], self.up[MIX])
      mix = jax.nn.sigmoid(mix + self.mix_bias[None, None])
    return before, _Read(raw['r'], k, raw['v'], loga, n, a, g, mix)

  def _project(self, name, x_BxLxD):
    """Returns a part BxLxHx_ in float32; BxLx1x_ if all heads share it."""
    x = self.projections[name](x_BxLxD)
    shared = self.config.shared_gate and name in self.config.ranks
    sets = 1 if shared else self.config.heads
    return x.reshape(*x.shape[:2], sets, -1).astype(jnp.float32)

  def _norm(self, o):
    o = o - jnp.mean(o, -1, keepdims=True)
    scale = jax.lax.rsqrt(
      jnp.mean(o * o, -1, keepdims=True) + self.config.norm_epsilon
    )
    return o * scale * self.norm_scale[None, None] + self.norm_bias[None, None]

  def emit(self, y: PyTree) -> PyTree:
    if not self.config.value_residual:
      return super().emit(y)
    return super().emit(y[0]), y[1]


def _init_shift(key, shape, dtype=jnp.float32):
  """Returns 1 - (channel / D)^p of each part, as published for layer 1."""
  del key
  channels = jnp.arange(shape[1], dtype=dtype) / shape[1]
  return jnp.stack([1 - channels**power for power in SHIFTS.values()])


def _init_decay(key, shape, dtype=jnp.float32):
  """Returns biases from -5.5 to .5: rows that forget slowly, and fast."""
  del key
  return jnp.broadcast_to(jnp.linspace(-5.5, 0.5, shape[1], dtype=dtype), shape)
