"""Long short-term memory, with a forget gate.

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)     g = tanh(W x_t + U h_{t-1} + b)
    c_t = f * c_{t-1} + i * g                    h_t = o * tanh(c_t)

W, U and b hold the gates in torch.nn.LSTM's order i, f, g, o; its two biases
are one here, their sum. The output is h, or W_o h + b where S differs from the
model's width D. Shapes: x BxLxD, h and c BxS. There are 4 S (D + S + 1)
parameters, and S D + D of the output.

recurrence.impl='cudnn' is ops/cudnn_lstm.py. It reads x itself, as `project`
then returns it, and the same parameters.
Sources: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Gers et
al., "Learning to Forget: Continual Prediction with LSTM", 2000.
"""

import dataclasses
from typing import ClassVar
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells.parts import gated
from rnn_jax.cells.parts import vector
from rnn_jax.ops import cudnn_lstm

LOGICAL_AXES = vector.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(gated.Config):
  """Options of the cell, section `cell` of a config."""

  forget_bias: float = 1.0  # initial b of f, which keeps c

  impls: ClassVar[tuple[str, ...]] = (*gated.Config.impls, 'cudnn')

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    if config.recurrence.impl != 'cudnn':
      return
    kernel, formats = "recurrence.impl='cudnn'", tuple(cudnn_lstm.FORMATS)
    if config.data.restarts:
      raise errors.InputError(
        f'{kernel}: documents begin within the rows of data.layout='
        f"{config.data.layout!r}, and cuDNN keeps the state: use 'buckets', or "
        "recurrence.impl='auto'"
      )
    train = config.train
    if train.precision not in formats or train.quantized:
      raise errors.InputError(
        f'{kernel}: train.precision={train.precision!r} with train.quantized='
        f"{train.quantized!r}: give one of {formats} and ''"
      )


class State(NamedTuple):
  """The state between two steps."""

  h_BxS: jax.Array
  c_BxS: jax.Array


class Cell(gated.Cell):
  """The cell; see the module's docstring."""

  kind = 'lstm'
  parts = 4

  def setup(self) -> None:
    super().setup()
    self.recurrent = self.recurrent_dense(self.parts, use_bias=False)

  def gate_biases(self) -> tuple[float, ...]:
    return 0.0, self.config.forget_bias, 0.0, 0.0

  def init_state(self, B: int) -> State:
    return State(*(jnp.zeros((B, self.state_width)) for _ in State._fields))

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    # A single step is always `step`.
    whole = self._is_cudnn and x_BxLxD.shape[1] > 1
    return x_BxLxD if whole else self.projection(x_BxLxD)

  def recur(
    self, state: State, u: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[State, jax.Array]:
    if not self._is_cudnn:
      return super().recur(state, u, starts_BxL)
    return base.in_segments(_run_cudnn, self, state, (u, starts_BxL))

  @property
  def _is_cudnn(self):
    return self.plan.impl == 'cudnn' and not self.is_initializing()

  def step(self, state: State, u: jax.Array) -> tuple[State, jax.Array]:
    i, f, g, o = self._raw(state, u)
    c = jax.nn.sigmoid(f) * state.c_BxS
    c = c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return State(h, c), h.astype(u.dtype)

  def gates(self, state: State, u: jax.Array) -> base.Gates:
    i, f, _, o = self._raw(state, u)
    names = {'write': i, 'keep': f, 'read': o}
    values = {name: jax.nn.sigmoid(x) for name, x in names.items()}
    return base.Gates(values, jax.nn.log_sigmoid(f))

  def _raw(self, state, u):
    """Returns i, f, g and o before their nonlinearity."""
    raw = u + self.recurrent(self.stored(state.h_BxS))
    return vector.split(raw, self.parts)


def _run_cudnn(cell, state, inputs):
  x_BxLxD, starts_BxL = inputs
  projection = cell.projection.variables['params']
  weights = cudnn_lstm.Weights(
    projection['kernel'],
    cell.recurrent.variables['params']['kernel'],
    projection['bias'],
  )
  h, c, y = cudnn_lstm.recurrence(
    *state,
    x_BxLxD,
    weights,
    starts_BxL=starts_BxL,
    operands=cell.policy.operands,
  )
  return State(h, c), y
