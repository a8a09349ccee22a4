"""sLSTM: an LSTM with exponential gates, its normalizer and its stabilizer.

    i, f, a_z, a_o = W x_t + R h_{t-1} + b
    z = tanh(a_z)    o = sigmoid(a_o)
    c_t = sigmoid(f) c_{t-1} + exp(i) z      n_t = sigmoid(f) n_{t-1} + exp(i)
    h_t = o c_t / n_t                        y = norm(h), of each head

W, R and b hold the parts in the order i, f, z, o. R is block-diagonal: units
read those of their own head, K = S / H. `forget_gate` 'exponential' has exp(f)
in the place of sigmoid(f). exp(i) overflows, so the state holds c and n times
exp(-m), with

    m_t = max(log sigmoid(f) + m_{t-1}, i),

which cancels in h; n is then 1 or more. A state of zeros has no past: m is i.
The norm is a LayerNorm of each head without a bias, or none; dropout is on y.
The output is y, or W_o y + b where S differs from the model's width D. Shapes:
x BxLxD, and h, c, n, m BxS. There are 4 S (D + K + 1) parameters, S of the norm
and S D + D of the output. What gradients take m for, see ops/slstm.py.
Source: Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024.
"""

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import by_head
from rnn_jax.cells.parts import gated
from rnn_jax.cells.parts import vector
from rnn_jax.ops import slstm

NORMS = ('layer', 'none')
FORGET_GATES = ('sigmoid', 'exponential')
EPSILON = 1e-5  # added to the variance of a head, as published
LOGICAL_AXES = vector.LOGICAL_AXES | {
  'recurrent/kernel': '_x_x_',
  'norm/scale': '_x_',
}
State = slstm.State


@dataclasses.dataclass(frozen=True)
class Config(gated.Config):
  """Options of the cell, section `cell` of a config."""

  heads: int = config_lib.option(1, minimum=1)  # H, which divides S
  forget_gate: str = config_lib.option('sigmoid', choices=FORGET_GATES)
  forget_bias: float = 1.0  # initial b of f, or of a sigmoid f as large
  norm: str = config_lib.option('layer', choices=NORMS)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    width = self.state_width or config.model.cell_width
    if width % self.heads:
      self._refuse('heads', f'they must divide the {width} units of the state')


class Cell(gated.Cell):
  """The cell; see the module's docstring."""

  kind = slstm.KIND
  parts = slstm.GATES

  def setup(self) -> None:
    super().setup()
    self.recurrent = by_head.Dense(self.parts * self._head_width, self.policy)
    if self.config.norm == 'layer':
      self.norm = nn.LayerNorm(
        EPSILON,
        dtype=jnp.float32,
        use_bias=False,
        feature_axes=(-2, -1),
        use_fast_variance=False,  # which loses the digits of a large mean
      )

  def gate_biases(self) -> tuple[float, ...]:
    b = self.config.forget_bias
    if self._is_exponential:
      b = -math.log1p(math.exp(-b))  # whose exp is sigmoid(b)
    return 0.0, b, 0.0, 0.0

  def init_state(self, B: int) -> State:
    return State(*(jnp.zeros((B, self.state_width)) for _ in State._fields))

  def run_native(
    self, state: State, u: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[State, jax.Array]:
    return slstm.recurrence(
      state,
      u,
      self.recurrent.variables['params']['kernel'],
      exponential=self._is_exponential,
      starts_BxL=starts_BxL,
    )

  def step(self, state: State, u: jax.Array) -> tuple[State, jax.Array]:
    i, f, z, o = self._raw(state, u)
    logf = f if self._is_exponential else jax.nn.log_sigmoid(f)
    past = jnp.where(state.n_BxS == 0, -jnp.inf, logf + state.m_BxS)
    m = jax.lax.stop_gradient(jnp.maximum(past, i))
    keep, write = jnp.exp(past - m), jnp.exp(i - m)
    c = keep * state.c_BxS + write * jnp.tanh(z)
    n = keep * state.n_BxS + write
    h = jax.nn.sigmoid(o) * (c / n)
    return State(h, c, n, m), h.astype(u.dtype)

  def emit(self, y: jax.Array) -> jax.Array:
    if self.config.norm == 'layer':
      heads = y.reshape(*y.shape[:2], self.config.heads, -1)
      y = self.norm(heads).astype(y.dtype).reshape(y.shape)
    return super().emit(y)

  def gates(self, state: State, u: jax.Array) -> base.Gates:
    """Returns sigmoid(f), or exp(f) up to 1; z's share in c / n; and o."""
    i, f, _, o = self._raw(state, u)
    after, _ = self.step(state, u)
    loga = jnp.minimum(f, 0) if self._is_exponential else jax.nn.log_sigmoid(f)
    values = {
      'keep': jnp.exp(loga),
      'write': jnp.exp(i - after.m_BxS) / after.n_BxS,
      'read': jax.nn.sigmoid(o),
    }
    return base.Gates(values, loga)

  @property
  def _is_exponential(self):
    return self.config.forget_gate == 'exponential'

  @property
  def _head_width(self):
    return self.state_width // self.config.heads

  def _raw(self, state, u):
    """Returns i, f, z and o before their nonlinearity."""
    h_Bx1xHxK = self.stored(state.h_BxS).reshape(
      -1, 1, self.config.heads, self._head_width
    )
    read = self.recurrent(h_Bx1xHxK)
    read = read.reshape(-1, self.config.heads, self.parts, self._head_width)
    read = read.swapaxes(1, 2).reshape(u.shape)
    return vector.split(u + read, self.parts)
