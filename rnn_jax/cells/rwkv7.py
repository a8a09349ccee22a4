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
rows of each head, rather than one set of rows for all of them, so that heads
can be sharded. The published model also mixes into v that of the first layer; a
cell knows no other layer. Its other half, the channel mix, is the block's MLP.

Shapes: r, w, k, a BxLxHxK, v, g, o BxLxHxP, the state BxHxKxP and the input of
one step, Bx1xD.
Source: Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution",
2025.
"""

import dataclasses
import math
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells.parts import by_head
from rnn_jax.cells.parts import delta as delta_parts
from rnn_jax.ops import delta
from rnn_jax.ops import devices

# The parts of x, and the power by which their share of x' grows over channels.
SHIFTS = {'r': 0.2, 'w': 0.9, 'k': 0.7, 'v': 0.7, 'a': 0.9, 'g': 0.2}
LOW_RANK = ('w', 'a', 'g')
SLOWEST = math.exp(-0.5)  # a decay is never below exp of minus this
EPSILON = 64e-5  # in the norm of outputs
LOGICAL_AXES = {
  'shift': '_xD',
  'projections_*/kernel': 'DxH',
  'up_*': 'Hx_x_',
  'decay_bias': 'Hx_',
  'rate_bias': 'Hx_',
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

  heads: int = 4
  key_width: int = 16
  value_width: int = 48
  rank: int = 16  # of a head's decays, rates and output gates
  dropout: float = 0.0  # on the gated outputs of the recurrence

  multiplying: ClassVar[tuple[str, ...]] = delta.MULTIPLYING

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for key in ('heads', 'key_width', 'value_width', 'rank'):
      if getattr(self, key) < 1:
        self._refuse(key, 'give 1 or more')
    self._check_dropout()
    delta_parts.check_recurrence(config)
    model = config.model
    if model.embedding_width not in (0, model.width):
      raise errors.InputError(
        f"model.embedding_width={model.embedding_width}: model.cell='rwkv7' "
        f'stores inputs of one width: give model.width={model.width}, or 0'
      )


class State(NamedTuple):
  """The state between two steps."""

  memory_BxHxKxP: jax.Array
  input_Bx1xD: jax.Array


class _Read(NamedTuple):
  """What the recurrence and the output read, BxLxHx_ each."""

  r: jax.Array
  k: jax.Array
  v: jax.Array
  loga: jax.Array
  n: jax.Array
  a: jax.Array
  g: jax.Array


class Cell(base.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config, constant = self.config, nn.initializers.constant
    H, K, P = config.heads, config.key_width, config.value_width
    widths = {'r': K, 'k': K, 'v': P} | dict.fromkeys(LOW_RANK, config.rank)
    self.projections = {
      name: self.dense(
        H * width,
        use_bias=False,
        kernel_init=nn.initializers.xavier_uniform(),
      )
      for name, width in widths.items()
    }
    up = nn.initializers.lecun_normal(batch_axis=0)
    self.up = {
      name: self.param(f'up_{name}', up, (H, config.rank, width))
      for name, width in (('w', K), ('a', K), ('g', P))
    }
    self.shift = self.param('shift', _init_shift, (len(SHIFTS), self._inputs))
    self.decay_bias = self.param('decay_bias', _init_decay, (H, K))
    self.rate_bias = self.param('rate_bias', constant(-0.19), (H, K))
    self.key_scale = self.param('key_scale', constant(0.71), (H, K))
    self.key_rate = self.param('key_rate', constant(1.02), (H, K))
    self.bonus = self.param('bonus', constant(-0.04), (H, K))
    self.norm_scale = self.param('norm_scale', nn.initializers.ones, (H, P))
    self.norm_bias = self.param('norm_bias', nn.initializers.zeros, (H, P))
    self.output = self.dense(
      self.width,
      use_bias=False,
      kernel_init=nn.initializers.xavier_uniform(),
    )
    self.drop = nn.Dropout(config.dropout)

  @property
  def _inputs(self):
    return self.inputs or self.width

  def init_state(self, B: int) -> State:
    config = self.config
    shape = (B, config.heads, config.key_width, config.value_width)
    return State(jnp.zeros(shape), jnp.zeros((B, 1, self._inputs)))

  def state_axes(self) -> State:
    return State('BxH', 'B')  # type: ignore[arg-type]

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    return x_BxLxD  # what is projected reads earlier inputs from the state

  def step(self, state: State, u: jax.Array) -> tuple[State, jax.Array]:
    state, y = self._advance(state, u[:, None], None, 'step')
    return state, y[:, 0]

  def gates(self, state: State, u: jax.Array) -> base.Gates:
    _, read = self._read(state.input_Bx1xD, u[:, None], None)
    loga, rate = read.loga[:, 0], read.a[:, 0]
    return base.Gates({'keep': jnp.exp(loga), 'write': rate}, loga)

  def recur(
    self, state: State, u: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[State, jax.Array]:
    if self.plan.impl == 'scan':
      return base.scan_steps(self, state, u, starts_BxL)
    return self._advance(state, u, starts_BxL, self.plan.impl)

  def _advance(self, state, x_BxLxD, starts_BxL, impl):
    """Runs any number of steps, for `step` and `recur`."""
    before, read = self._read(state.input_Bx1xD, x_BxLxD, starts_BxL)
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
    return state, y.reshape(*y.shape[:2], -1)

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
      x = self.projections[name](x_BxLxD + change * shift[n, None, None])
      x = x.reshape(*x.shape[:2], self.config.heads, -1)
      raw[name] = x.astype(jnp.float32)
    w = by_head.product(jnp.tanh(raw['w']), self.up['w'])
    loga = -SLOWEST * jax.nn.sigmoid(w + self.decay_bias[None, None])
    a = by_head.product(raw['a'], self.up['a'])
    a = jax.nn.sigmoid(a + self.rate_bias[None, None])
    g = by_head.product(jax.nn.sigmoid(raw['g']), self.up['g'])
    n = delta_parts.unit(raw['k'] * self.key_scale[None, None])
    k = raw['k'] * (1 + (a - 1) * self.key_rate[None, None])
    return before, _Read(raw['r'], k, raw['v'], loga, n, a, g)

  def _norm(self, o):
    o = o - jnp.mean(o, -1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(o * o, -1, keepdims=True) + EPSILON)
    return o * scale * self.norm_scale[None, None] + self.norm_bias[None, None]

  def emit(self, y: jax.Array) -> jax.Array:
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))


def _init_shift(key, shape, dtype=jnp.float32):
  """Returns 1 - (channel / D)^p of each part, as published for layer 1."""
  del key
  channels = jnp.arange(shape[1], dtype=dtype) / shape[1]
  return jnp.stack([1 - channels**power for power in SHIFTS.values()])


def _init_decay(key, shape, dtype=jnp.float32):
  """Returns biases from -5.5 to .5: rows that forget slowly, and fast."""
  del key
  return jnp.broadcast_to(jnp.linspace(-5.5, 0.5, shape[1], dtype=dtype), shape)
