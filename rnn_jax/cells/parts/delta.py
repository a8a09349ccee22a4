"""Cells whose matrix state corrects what a key holds, by the delta rule.

    [q, k, v] = silu(conv(W x))     q, k <- q / |q|, k / |k|, of each head
    b = c sigmoid(W_b x)            S' = diag(a_t) S_{t-1}
    S_t = S' + b_t k_t (v_t - S'^T k_t)^T        o_t = S_t^T q_t / sqrt(K)

`conv` is a short causal convolution of each channel. c is 1, or 2 where a step
may reflect what its key holds: an eigenvalue 1 - b of -1 lets a state count
(Grazzi et al., "Unlocking State-Tracking in Linear RNNs Through Negative
Eigenvalues", 2024). A cell's file says what a is.

Shapes: q, k BxLxHxK; a BxLxHxK or BxLxHx1; v, o BxLxHxP; b BxLxH; the state
BxHxKxP and the inputs of the convolution, BxWxE.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import delta
from rnn_jax.ops import devices

IMPLS = ('auto', 'scan', 'chunked', 'native')
LOGICAL_AXES = matrix.LOGICAL_AXES | {'taps': '_xH'}
MIXED = ('query', 'key', 'value')  # what the convolution mixes over time
SMALLEST = 1e-6  # added to a squared norm


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options that these cells share, section `cell` of the config."""

  key_width: int = 24
  value_width: int = 48
  convolution: int = 4  # taps
  reflects: bool = False  # c: whether b is in [0, 2], not [0, 1]

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.convolution < 1:
      self._refuse('convolution', 'give 1 tap or more')
    if config.mesh.sequence != 1:
      raise errors.InputError(
        f'mesh.sequence={config.mesh.sequence}: model.cell='
        f'{config.model.cell!r} runs a row on one device: give 1'
      )
    super().check(config)

  def _check_recurrence(self, config):
    base.check_impl(config, IMPLS)
    base.check_steps(config)

  @property
  def widths(self) -> dict[str, int]:
    return super().widths | {'beta': 1}


class Channels(NamedTuple):
  """The inputs of the recurrence."""

  q_BxLxHxK: jax.Array
  k_BxLxHxK: jax.Array
  v_BxLxHxP: jax.Array
  loga_BxLxHxK: jax.Array  # or BxLxHx1
  beta_BxLxH: jax.Array


class Cell(matrix.Cell):
  """A cell without its decay. `extra` is the convolution's."""

  def setup(self) -> None:
    super().setup()
    self.taps = self.param(
      'taps', matrix.init_taps, (self.config.convolution, self._channels)
    )

  @property
  def _channels(self):
    """E: those of the convolution."""
    widths = self.config.widths
    return self.config.heads * sum(widths[name] for name in MIXED)

  def init_extra(self, B: int) -> jax.Array:
    return jnp.zeros((B, self.config.convolution - 1, self._channels))

  def extra_axes(self) -> str:
    return 'Bx_xH'

  def decay(self, parts: matrix.Parts) -> jax.Array:
    """Returns log a, BxLxHxK or BxLxHx1, float32."""
    raise NotImplementedError

  def read(
    self, extra: jax.Array, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[jax.Array, Channels]:
    x = jnp.concatenate([parts[name] for name in MIXED], -1)
    extra, mixed = devices.current().convolve(
      extra,
      x.reshape(*x.shape[:2], -1),
      self.taps.astype(x.dtype),
      starts_BxL,
    )
    widths = {name: self.config.widths[name] for name in MIXED}
    own = matrix.split(nn.silu(mixed).reshape(x.shape), widths)
    q, k = (_unit(own[name]) for name in ('query', 'key'))
    raw = parts['beta'][..., 0].astype(jnp.float32)
    beta = (1 + self.config.reflects) * jax.nn.sigmoid(raw)
    return extra.astype(jnp.float32), Channels(
      q * self.config.key_width**-0.5,
      k,
      own['value'],
      self.decay(parts),
      beta,
    )

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: Channels,  # type: ignore[override]
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    return delta.recurrence(
      memory_BxHxKxP,
      *read,
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.plan.remat_every or self.plan.chunk_length,
    )

  def gates(self, state: matrix.State, u_BxHxC: jax.Array) -> base.Gates:
    parts = matrix.split(u_BxHxC[:, None], self.config.widths)
    _, read = self.read(state.extra, parts, None)
    loga = read.loga_BxLxHxK[:, 0]
    values: dict[str, Any] = {'keep': jnp.exp(loga)}
    values['write'] = read.beta_BxLxH[:, 0] / (1 + self.config.reflects)
    return base.Gates(values, loga)


def _unit(x):
  """Divides by the norm of the last axis, in float32."""
  x = x.astype(jnp.float32)
  return x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + SMALLEST)
