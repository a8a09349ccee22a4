"""Mamba: a selective state space model, K numbers for each of S channels.

    [x, z] = W u           x = silu(conv(x) + b)
    [r, k, q] = V x        dt = softplus(U r + b_dt)        a = exp(-dt e^A)
    h_t = a_t * h_{t-1} + (dt_t x_t) k_t^T                  * is elementwise
    y = W_o [(h_t q_t + D * x) * silu(z)]

k and q, B and C in the paper, are the same for all channels; r has R numbers.
With `selection_norm` each of r, k and q is rms_norm(.) * s, as in Jamba.
`conv` is a short causal convolution of each channel. At the start, A of a
channel is log 1, ..., log K and dt is between .001 and .1.

The recurrence is that of ops/linear_scan over S K numbers, in any of its forms.
They hold a, the addends and h of all steps in float32, 12 L S K bytes for a
row, and the gradients of these. With `remat.every` = E it is E steps of them,
and one state of S K numbers for each E steps. 'scan' makes a and the addends
step by step.

Devices that share the channels have S / shards of them, and add up what V makes
of each one's x: a sum of L (R + 2 K) numbers for a row, in each direction.

Shapes: u BxLxD, x, z, dt BxLxS, r BxLxR, k, q BxLxK, a BxLxSxK, A SxK; the
state is h, BxSxK, and the inputs of the convolution, BxWxS.
Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State
Spaces", 2023; Lieber et al., "Jamba: A Hybrid Transformer-Mamba Language
Model", 2024 (the norms).
"""

import dataclasses
import functools
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import devices
from rnn_jax.ops import linear_scan

LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'taps': '_xH',
  'taps_bias': 'H',
  'selection/kernel': 'Hx_',
  **{f'{name}_norm/scale': '_' for name in ('dt', 'key', 'query')},
  'dt/kernel': '_xH',
  'dt_bias': 'H',
  'log_rate': 'Hx_',
  'skip': 'H',
  'output/kernel': 'HxD',
}
EXPAND = 2  # S / D, if not given
NARROW = 16  # D / R, if not given


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  inner_width: int = config_lib.option(0, minimum=0)  # S; 0: 2 model.width
  key_width: int = config_lib.option(16, minimum=1)  # K
  # R; 0: model.width / 16, rounded up.
  rank: int = config_lib.option(0, minimum=0)
  convolution: int = config_lib.option(4, minimum=1)  # taps
  convolution_bias: bool = True
  selection_norm: bool = False  # of r, k and q, each with a scale
  # Added to their mean square.
  norm_epsilon: float = config_lib.option(
    1e-6, above=0, needs='cell.selection_norm'
  )
  # On the gated outputs of the recurrence.
  dropout: float = config_lib.option(0.0, below=1)

  impls: ClassVar[tuple[str, ...]] = base.impls_of(linear_scan.IMPLS)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    base.check_shards(config)
    base.check_channels(config, self)

  def resolve(self, config: config_lib.Config) -> Self:
    """Returns the options with the widths that follow from the model's."""
    return self.of_width(config.model.cell_width)

  def of_width(self, width: int) -> Self:
    """Returns the options with the widths that follow from D."""
    return dataclasses.replace(
      self,
      inner_width=self.inner_width or EXPAND * width,
      rank=self.rank or -(-width // NARROW),
    )

  def of_shard(self, shards: int) -> Self:
    """Returns the options of a device with 1 / `shards` of the channels."""
    return dataclasses.replace(self, inner_width=self.inner_width // shards)


class State(NamedTuple):
  """The state between two steps."""

  h_BxSxK: jax.Array
  inputs_BxWxS: jax.Array


class _Read(NamedTuple):
  """What the recurrence and its output read, in float32."""

  x_BxLxS: jax.Array
  dt_BxLxS: jax.Array
  k_BxLxK: jax.Array
  q_BxLxK: jax.Array
  loga_BxLxSxK: jax.Array


class Cell(base.ParallelCell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config = self._widths
    S, K = config.inner_width, config.key_width
    self.projection = self.xavier(2 * S)
    self.taps = self.param('taps', matrix.init_taps, (config.convolution, S))
    if config.convolution_bias:
      self.taps_bias = self.param('taps_bias', nn.initializers.zeros, (S,))
    self.selection = self.xavier(config.rank + 2 * K)
    if config.selection_norm:
      norm = functools.partial(
        nn.RMSNorm, config.norm_epsilon, dtype=jnp.float32
      )
      self.dt_norm, self.key_norm, self.query_norm = norm(), norm(), norm()
    # Evenly within R^-1/2.
    even = nn.initializers.variance_scaling(1 / 3, 'fan_in', 'uniform')
    self.dt = self.dense(S, use_bias=False, kernel_init=even)
    self.dt_bias = self.param('dt_bias', matrix.init_steps, (S,))
    self.log_rate = self.param('log_rate', _init_rates, (S, K))
    self.skip = self.param('skip', nn.initializers.ones, (S,))
    self.output = self.xavier(self.width)
    self.drop = nn.Dropout(config.dropout)

  @property
  def _widths(self):
    """The options, also of a cell without the rest of a config."""
    return self.config.of_width(self.width)

  def init_state(self, B: int) -> State:
    config = self._widths
    return State(
      jnp.zeros((B, config.inner_width, config.key_width)),
      jnp.zeros((B, config.convolution - 1, config.inner_width)),
    )

  def state_axes(self) -> State:
    return State._make(['BxH', 'Bx_xH'])

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    """Returns x before the convolution and z, BxLxSx2."""
    # Side by side, so that a device's columns are both of its channels.
    u = self.projection(x_BxLxD)
    return u.reshape(*u.shape[:2], -1, 2)

  def gates(self, state: State, u_BxSx2: jax.Array) -> base.Gates:
    _, read = self._read(state, u_BxSx2[:, None, :, 0], None)
    loga = read.loga_BxLxSxK[:, 0]
    return base.Gates({'keep': jnp.exp(loga)}, loga)

  def advance(
    self,
    state: State,
    u_BxLxSx2: jax.Array,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[State, jax.Array]:
    raw, z = u_BxLxSx2[..., 0], u_BxLxSx2[..., 1]
    before, read = self._read(state, raw, starts_BxL)
    write = read.dt_BxLxS * read.x_BxLxS
    added = write[..., None] * read.k_BxLxK[:, :, None]
    B, L, S, K = added.shape
    h_last, h = devices.current().linear_scan(
      state.h_BxSxK.reshape(B, S * K),
      jnp.exp(read.loga_BxLxSxK).reshape(B, L, S * K),
      added.reshape(B, L, S * K),
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.plan.chunk_length,
    )
    y = jnp.sum(h.reshape(B, L, S, K) * read.q_BxLxK[:, :, None], -1)
    y = y + self.skip[None, None] * read.x_BxLxS
    state = State(h_last.reshape(B, S, K), before.astype(jnp.float32))
    return state, y.astype(z.dtype) * nn.silu(z)

  def _read(self, state, raw_BxLxS, starts_BxL):
    """Returns (the convolution's next inputs, _Read)."""
    before, x = devices.current().convolve(
      state.inputs_BxWxS,
      raw_BxLxS,
      self.taps.astype(raw_BxLxS.dtype),
      starts_BxL,
    )
    if self.config.convolution_bias:
      x = x + self.taps_bias[None, None].astype(x.dtype)
    x = nn.silu(x)
    r, k, q = self._select(x)
    raw = self.dt(r).astype(jnp.float32) + self.dt_bias[None, None]
    dt = jax.nn.softplus(raw)
    loga = -dt[..., None] * jnp.exp(self.log_rate)[None, None]
    x, k, q = (z.astype(jnp.float32) for z in (x, k, q))
    return before, _Read(x, dt, k, q, loga)

  def _select(self, x_BxLxS):
    """Returns r, k and q, which all channels and so all devices share."""
    both = self.selection(x_BxLxS)
    rank, keys = self._widths.rank, self._widths.key_width
    ends = [rank, rank + keys]
    current = devices.current()
    shards = current.shards('H')
    both = current.tp_reduce(both) if shards > 1 else both
    if self.config.selection_norm:
      norms = self.dt_norm, self.key_norm, self.query_norm
      each = zip(norms, jnp.split(both, ends, -1), strict=True)
      both = jnp.concatenate([norm(x) for norm, x in each], -1)
      both = both.astype(x_BxLxS.dtype)
    # So that gradients of the norms are of all channels.
    both = current.tp_copy(both) if shards > 1 else both
    return jnp.split(both, ends, -1)


def _init_rates(key, shape, dtype=jnp.float32):
  """Returns log 1, ..., log K for each channel, SxK."""
  del key  # not random
  rates = jnp.log(jnp.arange(1, shape[1] + 1, dtype=dtype))
  return jnp.broadcast_to(rates, shape)
