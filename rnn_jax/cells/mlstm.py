"""mLSTM: a matrix memory with an exponential input gate, and its normalizer.

    q = W_q x    k = W_k x / sqrt(K)    v = W_v x    o = sigmoid(W_o x)
    i, f = W x + b, for each head           (log of the input gate; sigmoid's)
    C_t = sigmoid(f_t) C_{t-1} + exp(i_t) k_t v_t^T
    n_t = sigmoid(f_t) n_{t-1} + exp(i_t) k_t
    h_t = C_t^T q_t / max(|n_t^T q_t|, 1)        y = W_y [o * norm(h)]

exp(i) overflows, so the state holds C and n times exp(-m), with

    m_t = max(m_{t-1} + log sigmoid(f_t), i_t, 0),

which cancels in h. [C, n] times exp(-m) is the recurrence of ops/gla with the
value [v, 1], the log-decay log sigmoid(f_t) + m_{t-1} - m_t <= 0 and the key
exp(i_t - m_t) k_t, so that no gate overflows in any of its forms. The paper's m
has no floor of 0; h doesn't depend on it, and with it exp(-m) <= 1. The norm is
of each head, 'rms', or 'layer' as in the papers, without a bias; it has no
scale, which W_y can learn, unless `norm_scale` asks for one of each channel.

xLSTM-7B caps the gates, z = cap tanh(z / cap) for z of i and f, which keeps
exp(-m) in float32's range, and adds an epsilon to the divisor of h:

    h_t = C_t^T q_t / (max(|n_t^T q_t|, 1) + epsilon exp(m_t))

where its m is below 0, ours is 0, and h differs by less than epsilon of it.

Shapes: q, k BxLxHxK, v, o, h BxLxHxP, i, f, m BxLxH, the state BxHxKx(P+1).
Source: Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024, and "xLSTM
7B: A Recurrent LLM for Fast and Efficient Inference", 2025.
"""

import dataclasses
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import devices

LOGICAL_AXES = matrix.LOGICAL_AXES | {'gate_bias': 'Hx_', 'norm/scale': 'Hx_'}
SMALLEST = 1e-6  # |n^T q| exp(-m) below it is float32's rounding
NORMS = ('rms', 'layer')


@dataclasses.dataclass(frozen=True)
class Config(matrix.Config):
  """Options of the cell, section `cell` of a config."""

  input_bias: float = 0.0  # initial b of i
  forget_biases: tuple[float, float] = (3.0, 6.0)  # of f: first, last head
  # Of i and f, which are between it and -it; 0: none.
  gate_cap: float = config_lib.option(0.0, minimum=0)
  # Added to the divisor of h.
  normalizer_epsilon: float = config_lib.option(0.0, minimum=0)
  # Or 'layer', which also subtracts the mean.
  norm: str = config_lib.option('rms', choices=NORMS)

  scaled_axes: ClassVar[tuple[int, ...]] = (-2, -1)
  excludes: ClassVar[tuple[str, ...]] = ('mesh.sequence!=1',)

  @property
  def widths(self) -> dict[str, int]:
    return super().widths | {'input': 1, 'forget': 1}


class Channels(NamedTuple):
  """Those of matrix.Channels, and m after each step."""

  q_BxLxHxK: jax.Array
  k_BxLxHxK: jax.Array
  v_BxLxHxP: jax.Array
  loga_BxLxHxK: jax.Array
  m_BxLxH: jax.Array


class Cell(matrix.Cell):
  """The cell; see the module's docstring. `extra` is m, BxH."""

  def setup(self) -> None:
    super().setup()
    shape = (self.config.heads, 2)
    self.gate_bias = self.param('gate_bias', self._init_biases, shape)

  def _init_biases(self, key, shape, dtype=jnp.float32):
    del key  # not random
    forget = jnp.linspace(*self.config.forget_biases, shape[0], dtype=dtype)
    return jnp.stack([jnp.full_like(forget, self.config.input_bias), forget], 1)

  def make_norm(self) -> nn.Module:
    if self.config.norm == 'rms':
      return super().make_norm()
    return nn.LayerNorm(
      self.config.norm_epsilon,
      dtype=jnp.float32,
      use_bias=False,
      use_scale=self.config.norm_scale,
      feature_axes=self.config.scaled_axes,
      use_fast_variance=False,  # which loses the digits of a large mean
    )

  @property
  def columns(self) -> int:
    return self.config.value_width + 1

  def init_extra(self, B: int) -> jax.Array:
    return jnp.zeros((B, self.config.heads))

  def extra_axes(self) -> str:
    return 'BxH'

  def read(
    self, extra: jax.Array, parts: matrix.Parts, starts_BxL: jax.Array | None
  ) -> tuple[jax.Array, Any]:
    raw = jnp.concatenate([parts['input'], parts['forget']], -1)
    raw = raw.astype(jnp.float32) + self.gate_bias[None, None]
    if cap := self.config.gate_cap:
      raw = cap * jnp.tanh(raw / cap)
    i, logf = raw[..., 0], jax.nn.log_sigmoid(raw[..., 1])
    m_BxLxH = _maxima(extra, i, logf, starts_BxL)
    before = jnp.concatenate([extra[:, None], m_BxLxH[:, :-1]], 1)
    # Sums round: without the minimum it could be just above 0.
    loga = jnp.minimum(logf + before - m_BxLxH, 0)
    q, k, v = (
      parts[name].astype(jnp.float32) for name in ('query', 'key', 'value')
    )
    k = k * (jnp.exp(i - m_BxLxH) * self.config.key_width**-0.5)[..., None]
    v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
    return m_BxLxH[:, -1], Channels(q, k, v, loga[..., None], m_BxLxH)

  def run(
    self,
    memory_BxHxKxP: jax.Array,
    read: Any,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[jax.Array, jax.Array]:
    inputs = matrix.Channels(*read[:-1])
    return super().run(memory_BxHxKxP, inputs, starts_BxL, impl)

  def finish(
    self, o_BxLxHxP: jax.Array, parts: matrix.Parts, read: Any, extra: jax.Array
  ) -> jax.Array:
    del extra
    sums, weight = o_BxLxHxP[..., :-1], jnp.abs(o_BxLxHxP[..., -1:])
    least, epsilon = jnp.exp(-read.m_BxLxH), self.config.normalizer_epsilon
    if not epsilon:
      least = jnp.maximum(least, SMALLEST)
    h = sums / (jnp.maximum(weight, least[..., None]) + epsilon)
    return self.gated(h, jax.nn.sigmoid(parts['output_gate']))


def _maxima(m_BxH, i_BxLxH, logf_BxLxH, starts_BxL):
  """Returns m after each step, from m before the first: log L rounds."""
  if starts_BxL is not None:
    logf_BxLxH = jnp.where(starts_BxL[..., None] != 0, -jnp.inf, logf_BxLxH)

  def compose(first, second):
    (sum_1, m_1), (sum_2, m_2) = first, second
    return sum_1 + sum_2, jnp.maximum(m_1 + sum_2, m_2)

  own = jnp.maximum(i_BxLxH, 0)
  own = own.at[:, 0].max(m_BxH + logf_BxLxH[:, 0])
  scan = devices.current().associative_scan
  return scan(compose, (logf_BxLxH, own), axis=1)[1]
