"""Cells with a matrix state that correct what a key holds: the delta rule.

    [q, k, v, ...] = W x        [q, k, v] = silu(conv([q, k, v]))
    q <- q / (|q| sqrt(K))      k <- k / |k|        b = m sigmoid(W_b x)

    S' = diag(a_t) S_{t-1}      S_t = S' + b_t k_t (v_t - S'^T k_t)^T
    o_t = S_t^T q_t             y = W_o [n_1; ...; n_H]

A cell's file says what decays, a, and how the outputs n_h of a head follow from
o_h: `decay` and `finish`. `conv` is a short causal convolution of each channel.
m = 1 as published; with m = 2 the transitions have negative eigenvalues too,
which some state tracking needs (Grazzi et al., "Unlocking State-Tracking in
Linear RNNs Through Negative Eigenvalues", 2024). The norm is of each head and
has no scale, which W_o can learn, so that heads can be sharded.

Shapes: q, k, a BxLxHxK, or a BxLxHx1; v, o BxLxHxP; b BxLxH; the state BxHxKxP
and the inputs of the convolution, BxWxE.
"""

import dataclasses
from typing import ClassVar
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import delta
from rnn_jax.ops import devices

IMPLS = base.impls_of(delta.IMPLS)
LOGICAL_AXES = matrix.LOGICAL_AXES
EPSILON = 1e-6  # in the norm of queries and keys


def chunk_length(plan: base.Plan) -> int | None:
  """Returns the steps between the states that ops/delta stores."""
  return plan.remat_every or plan.chunk_length


def unit(x: jax.Array, epsilon: float = EPSILON) -> jax.Array:
  """Returns x / |x| along the last axis, in float32.

  `epsilon` is added to the squared length.
  """
  x = x.astype(jnp.float32)
  return x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + epsilon)


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options that these cells share, section `cell` of the config."""

  convolution: int = config_lib.option(4, minimum=0)  # taps; 0: none
  max_beta: float = 1.0  # m; 2: negative eigenvalues too

  impls: ClassVar[tuple[str, ...]] = IMPLS
  multiplying: ClassVar[tuple[str, ...]] = delta.MULTIPLYING
  block: ClassVar[int] = 1
  excludes: ClassVar[tuple[str, ...]] = ('mesh.sequence!=1',)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if not 0 < self.max_beta <= 2:
      self._refuse('max_beta', 'give a number above 0, up to 2')
    super().check(config)

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one head's projection."""
    return {
      'query': self.key_width,
      'key': self.key_width,
      'value': self.value_width,
      'beta': 1,
    }


class Channels(NamedTuple):
  """The inputs of the recurrence."""

  q_BxLxHxK: jax.Array
  k_BxLxHxK: jax.Array
  v_BxLxHxP: jax.Array
  loga_BxLxHxK: jax.Array  # or BxLxHx1
  beta_BxLxH: jax.Array


class Cell(matrix.Cell):
  """A cell without its `decay`; `finish` is an RMS norm."""

  mixed: ClassVar[tuple[str, ...]] = ('query', 'key', 'value')

  @property
  def lengths(self) -> dict[str, float]:
    return {'query': self.config.key_width**-0.5, 'key': 1.0}

  def decay(self, parts: matrix.Parts) -> jax.Array:
    """Returns log a, BxLxHxK or BxLxHx1, float32."""
    raise NotImplementedError

  def read(
    self,
    extra: jax.Array | None,
    parts: matrix.Parts,
    starts_BxL: jax.Array | None,
  ) -> tuple[jax.Array | None, Channels]:
    config = self.config
    extra, mixed = self.mix(extra, parts, starts_BxL)
    q, k, v = mixed.values()
    beta = config.max_beta * self._write(parts)
    return extra, self.channels_of(q, k, v, self.decay(parts), beta)

  def _write(self, parts):
    return jax.nn.sigmoid(parts['beta'].astype(jnp.float32))

  def channels_of(
    self,
    q_BxLxHxK: jax.Array,
    k_BxLxHxK: jax.Array,
    v_BxLxHxP: jax.Array,
    loga_BxLxHxK: jax.Array,
    beta_BxLxH: jax.Array,
  ) -> Channels:
    """Returns queries and keys for each memory, with the others.

    The values and rates of the memories that share a key are in its last axis.
    """
    config = self.config
    q, k, v = q_BxLxHxK, k_BxLxHxK, v_BxLxHxP
    if config.memories != config.heads:
      shared = config.memories // config.heads
      q, k = (jnp.repeat(x, shared, 2) for x in (q, k))
      v = v.reshape(*v.shape[:2], config.memories, -1)
    beta = beta_BxLxH.reshape(*v.shape[:3])
    return Channels(q, k, v, loga_BxLxHxK, beta)

  @property
  def chunk_length(self) -> int | None:
    """The steps between the states that ops/delta stores."""
    return chunk_length(self.plan)

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: Channels,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    return devices.current().delta(
      memory_BxHxKxP,
      *read,
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.chunk_length,
      operands=self.policy.of_recurrence(impl),
    )

  def finish(
    self,
    o_BxLxHxP: jax.Array,
    parts: matrix.Parts,
    read: Channels,
    extra: jax.Array | None,
  ) -> jax.Array:
    del parts, read, extra
    return self.norm(o_BxLxHxP)

  def gates(self, state: matrix.State, u: matrix.Parts) -> base.Gates:
    parts = matrix.at_one_step(u)
    loga, write = self.decay(parts)[:, 0], self._write(parts)[:, 0]
    write = write.reshape(write.shape[0], -1, 1)
    return base.Gates({'keep': jnp.exp(loga), 'write': write}, loga)
