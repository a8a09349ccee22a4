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
import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.ops import delta
from rnn_jax.ops import devices

IMPLS = ('auto', 'scan', 'chunked', 'native')
LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'taps': '_xH',
  'output/kernel': 'HxD',
}
RATES = 1.0, 16.0  # exp of the log rate at the start
STEPS = 1e-3, 1e-1  # softplus of its bias at the start
EPSILON = 1e-6  # in the norm of queries and keys
_MIXED = ('query', 'key', 'value')  # what the convolution mixes over time


def check_recurrence(config: config_lib.Config) -> None:
  """Checks how a config's cell runs the recurrence of ops/delta.

  Raises:
    InputError: an unknown impl, or rows sharded along time.
  """
  base.check_impl(config, IMPLS)
  base.check_steps(config)
  if config.mesh.sequence != 1:
    raise errors.InputError(
      f'mesh.sequence={config.mesh.sequence}: model.cell='
      f'{config.model.cell!r} runs a row on one device: give 1'
    )


def chunk_length(plan: base.Plan) -> int | None:
  """Returns the steps between the states that ops/delta stores."""
  return plan.remat_every or plan.chunk_length


def unit(x: jax.Array) -> jax.Array:
  """Returns x / |x| along the last axis, in float32."""
  x = x.astype(jnp.float32)
  return x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + EPSILON)


def by_head(x_BxLxHx_: jax.Array, maps_Hx_x_: jax.Array) -> jax.Array:
  """Returns each head's channels times its own matrix, BxLxHx_, float32."""
  return jnp.einsum('blhr,hrk->blhk', x_BxLxHx_.astype(jnp.float32), maps_Hx_x_)


def init_log_rate(
  key: jax.Array,
  shape: tuple[int, ...],
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> jax.Array:
  """Draws log A of a = exp(-A softplus(x + bias)), as Mamba does."""
  low, high = RATES
  return jnp.log(jax.random.uniform(key, shape, dtype, low, high))


def init_step_bias(
  key: jax.Array,
  shape: tuple[int, ...],
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> jax.Array:
  """Draws that bias, whose softplus is log-uniform in STEPS."""
  low, high = map(math.log, STEPS)
  step = jnp.exp(jax.random.uniform(key, shape, dtype, low, high))
  return step + jnp.log(-jnp.expm1(-step))  # the inverse of softplus


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options that these cells share, section `cell` of the config."""

  heads: int = 4
  key_width: int = 16
  value_width: int = 48
  convolution: int = 4  # taps; 0: none
  max_beta: float = 1.0  # m; 2: negative eigenvalues too
  dropout: float = 0.0  # on the normed outputs of the recurrence

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for key in ('heads', 'key_width', 'value_width'):
      if getattr(self, key) < 1:
        self._refuse(key, 'give 1 or more')
    if self.convolution < 0:
      self._refuse('convolution', 'give the number of taps, or 0')
    if not 0 < self.max_beta <= 2:
      self._refuse('max_beta', 'give a number above 0, up to 2')
    self._check_dropout()
    check_recurrence(config)

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of one head's projection."""
    return {
      'query': self.key_width,
      'key': self.key_width,
      'value': self.value_width,
      'beta': 1,
    }


class State(NamedTuple):
  """The state between two steps. Unused parts are None."""

  memory_BxHxKxP: jax.Array
  inputs: jax.Array | None = None  # of the convolution


Parts = Mapping[str, jax.Array]  # BxLxHx_ each, of the projection


class Cell(base.Cell):
  """A cell without its `decay` and its `finish`."""

  def setup(self) -> None:
    config, xavier = self.config, nn.initializers.xavier_uniform()
    columns = config.heads * sum(config.widths.values())
    self.projection = self.dense(columns, use_bias=False, kernel_init=xavier)
    if config.convolution:
      shape = config.convolution, self._channels
      self.taps = self.param('taps', _init_taps, shape)
    self.norm = nn.RMSNorm(dtype=jnp.float32, use_scale=False)
    self.output = self.dense(self.width, use_bias=False, kernel_init=xavier)
    self.drop = nn.Dropout(config.dropout)

  def decay(self, parts: Parts) -> jax.Array:
    """Returns log a, BxLxHxK or BxLxHx1, float32."""
    raise NotImplementedError

  def finish(self, o_BxLxHxP: jax.Array, parts: Parts) -> jax.Array:
    """Returns the inputs of W_o, BxLxHxP."""
    del parts
    return self.norm(o_BxLxHxP)

  @property
  def _channels(self):
    """E: those of the convolution."""
    widths = self.config.widths
    return self.config.heads * sum(widths[name] for name in _MIXED)

  def init_state(self, B: int) -> State:
    config, inputs = self.config, None
    if config.convolution:
      inputs = jnp.zeros((B, config.convolution - 1, self._channels))
    shape = (B, config.heads, config.key_width, config.value_width)
    return State(jnp.zeros(shape), inputs)

  def state_axes(self) -> State:
    inputs = 'Bx_xH' if self.config.convolution else None
    return State('BxH', inputs)  # type: ignore[arg-type]

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    """Returns the raw channels, BxLxHxC: C is the sum of `config.widths`."""
    x = self.projection(x_BxLxD)
    return x.reshape(*x.shape[:2], self.config.heads, -1)

  def step(self, state: State, u_BxHxC: jax.Array) -> tuple[State, jax.Array]:
    state, y = self._advance(state, u_BxHxC[:, None], None, 'step')
    return state, y[:, 0]

  def gates(self, state: State, u_BxHxC: jax.Array) -> base.Gates:
    parts = _split(u_BxHxC[:, None], self.config.widths)
    loga = self.decay(parts)[:, 0]
    write = jax.nn.sigmoid(parts['beta'].astype(jnp.float32))
    return base.Gates({'keep': jnp.exp(loga), 'write': write[:, 0]}, loga)

  def recur(
    self, state: State, u_BxLxHxC: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[State, jax.Array]:
    if self.plan.impl == 'scan':
      return base.scan_steps(self, state, u_BxLxHxC, starts_BxL)
    return self._advance(state, u_BxLxHxC, starts_BxL, self.plan.impl)

  def _advance(self, state, u_BxLxHxC, starts_BxL, impl):
    """Runs any number of steps, for `step` and `recur`."""
    config = self.config
    parts = _split(u_BxLxHxC, config.widths)
    inputs, q, k, v = self._mix(state.inputs, parts, starts_BxL)
    beta = config.max_beta * jax.nn.sigmoid(parts['beta'].astype(jnp.float32))
    memory, o = delta.recurrence(
      state.memory_BxHxKxP,
      unit(q) * config.key_width**-0.5,
      unit(k),
      v,
      self.decay(parts),
      beta[..., 0],
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=chunk_length(self.plan),
    )
    y = self.finish(o, parts).astype(self.policy.activations)
    return State(memory, inputs), y.reshape(*y.shape[:2], -1)

  def _mix(self, inputs, parts, starts_BxL):
    """Returns (the convolution's next inputs, q, k, v)."""
    x = jnp.concatenate([parts[name] for name in _MIXED], -1)
    if inputs is not None:
      inputs, mixed = devices.current().convolve(
        inputs,
        x.reshape(*x.shape[:2], -1),
        self.taps.astype(x.dtype),
        starts_BxL,
      )
      inputs, x = inputs.astype(jnp.float32), mixed.reshape(x.shape)
    widths = {name: self.config.widths[name] for name in _MIXED}
    return inputs, *_split(nn.silu(x), widths).values()

  def emit(self, y: jax.Array) -> jax.Array:
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))


def _split(x, widths):
  """Splits the last axis into named parts."""
  # One split: its gradient is one concatenation, not a sum of padded parts.
  ends = itertools.accumulate(widths.values())
  return dict(zip(widths, jnp.split(x, list(ends)[:-1], -1), strict=True))


def _init_taps(key, shape, dtype=jnp.float32):
  bound = shape[0] ** -0.5
  return jax.random.uniform(key, shape, dtype, -bound, bound)
