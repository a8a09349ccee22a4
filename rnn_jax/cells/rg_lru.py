"""The recurrent block of Griffin: an RG-LRU after a short convolution.

    u = conv(W_u x + b_u) + b        g = gelu(W_g x + b_g)
    r = sigmoid(R u + b_r)           i = sigmoid(I u + b_i)
    a = exp(-8 softplus(lambda) r)
    h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * i_t * u_t      * is elementwise
    y = W_o [h * g] + b_o

R and I are block-diagonal, with a block for each head, which reads the u of
that head only. At the start, a at r = 1 is between .9 and .999. With
`whole_start`, as in RecurrentGemma, the first step of a document is h = i * u.
The recurrence is that of ops/linear_scan in any of its forms.

Shapes: u, g, r, i, a, h BxLxS with S = H P; the state is h, the inputs of the
convolution, BxWxS, and with `whole_start` the number of steps so far, B.
Source: De et al., "Griffin: Mixing Gated Linear Recurrences with Local
Attention for Efficient Language Models", 2024.
"""

import dataclasses
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import by_head
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import devices
from rnn_jax.ops import linear_scan

LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'projection/bias': 'H',
  'taps': '_xH',
  'taps_bias': 'H',
  'gate/kernel': 'Hx_x_',
  'gate/bias': 'Hx_',
  'decay': 'H',
  'output/kernel': 'HxD',
  'output/bias': 'D+H',
}
SHARPNESS = 8.0  # of r, in a
KEPT = 0.9, 0.999  # a at r = 1, at the start


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  heads: int = config_lib.option(4, minimum=1)
  head_width: int = config_lib.option(32, minimum=1)  # P
  convolution: int = config_lib.option(4, minimum=1)  # taps
  whole_start: bool = False  # a document's first step adds i u unscaled
  dropout: float = config_lib.option(0.0, below=1)  # on h * g

  impls: ClassVar[tuple[str, ...]] = base.impls_of(linear_scan.IMPLS)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    base.check_shards(config)


class State(NamedTuple):
  """The state between two steps."""

  h_BxS: jax.Array
  inputs_BxWxS: jax.Array
  steps_B: jax.Array | None = None  # of the document, with `whole_start`


class Cell(base.ParallelCell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config = self.config
    width = config.heads * config.head_width
    self.projection = self.xavier(2 * width, biased=True)
    shape = config.convolution, width
    self.taps = self.param('taps', matrix.init_taps, shape)
    self.taps_bias = self.param('taps_bias', nn.initializers.zeros, (width,))
    self.gate = by_head.Dense(2 * config.head_width, self.policy, biased=True)
    self.decay = self.param('decay', _init_decay, (width,))
    self.output = self.xavier(self.width, biased=True)
    self.drop = nn.Dropout(config.dropout)

  def init_state(self, B: int) -> State:
    config = self.config
    width = config.heads * config.head_width
    inputs = jnp.zeros((B, config.convolution - 1, width))
    steps = jnp.zeros(B) if config.whole_start else None
    return State(jnp.zeros((B, width)), inputs, steps)

  def state_axes(self) -> State:
    return State._make(
      ['BxH', 'Bx_xH', 'B' if self.config.whole_start else None]
    )

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    """Returns u before the convolution and g before gelu, BxLxHx(2P)."""
    x = self.projection(x_BxLxD)
    return x.reshape(*x.shape[:2], self.config.heads, -1)

  def gates(self, state: State, u_BxHxC: jax.Array) -> base.Gates:
    raw, _ = jnp.split(u_BxHxC[:, None], 2, -1)
    _, _, loga, write = self._read(state, raw, None)
    loga, write = loga[:, 0], write[:, 0]
    return base.Gates({'keep': jnp.exp(loga), 'write': write}, loga)

  def advance(
    self,
    state: State,
    u_BxLxHxC: jax.Array,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[State, jax.Array]:
    raw, gate = jnp.split(u_BxLxHxC, 2, -1)
    before, u, loga, write = self._read(state, raw, starts_BxL)
    steps_B, share = self._share(state.steps_B, loga, starts_BxL)
    h_BxS, h = devices.current().linear_scan(
      state.h_BxS,
      jnp.exp(loga),
      share * write * u,
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.plan.chunk_length,
    )
    y = h.astype(gate.dtype) * nn.gelu(gate.reshape(h.shape))
    return State(h_BxS, before.astype(jnp.float32), steps_B), y

  def _share(self, steps_B, loga, starts_BxL):
    """Returns (steps_B after these steps, what of i u is added, BxLxS)."""
    share = _complement(loga)
    if not self.config.whole_start:
      return None, share
    steps_B = jax.lax.stop_gradient(steps_B).astype(jnp.int32)
    steps_B, position_BxL = devices.current().count(
      steps_B, loga.shape[1], starts_BxL
    )
    share = jnp.where(position_BxL[..., None] == 0, 1.0, share)
    return steps_B.astype(jnp.float32), share

  def _read(self, state, raw_BxLxHxP, starts_BxL):
    """Returns (the convolution's next inputs, u, log a, i), BxLxS, float32."""
    B, L = raw_BxLxHxP.shape[:2]
    flat, taps = raw_BxLxHxP.reshape(B, L, -1), self.taps
    before, u = devices.current().convolve(
      state.inputs_BxWxS, flat, taps.astype(flat.dtype), starts_BxL
    )
    u = u + self.taps_bias[None, None].astype(u.dtype)
    raw = self.gate(u.reshape(raw_BxLxHxP.shape)).astype(jnp.float32)
    r, i = (jax.nn.sigmoid(x).reshape(B, L, -1) for x in jnp.split(raw, 2, -1))
    loga = -SHARPNESS * jax.nn.softplus(self.decay)[None, None] * r
    return before, u.astype(jnp.float32), loga, i


def _complement(loga):
  """Returns sqrt(1 - a^2); where a is 1, a gradient of 0, not infinity."""
  square = -jnp.expm1(2 * loga)
  some = square > 0
  return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def _init_decay(key, shape, dtype=jnp.float32):
  """Draws lambda so that exp(-8 softplus(lambda)) is even between KEPT."""
  kept = jax.random.uniform(key, shape, dtype, *KEPT)
  return jnp.log(jnp.expm1(-jnp.log(kept) / SHARPNESS))
