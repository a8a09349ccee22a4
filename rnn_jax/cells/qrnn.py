"""The quasi-recurrent network: gates of a convolution, a linear recurrence.

    z = tanh(sum_{d<k} W_d x_{t-d} + b)
    i, f, o = sigmoid(sum_{d<k} W_d x_{t-d} + b)

    pooling 'f':    h_t = f * h_{t-1} + (1 - f) * z          y = h
    pooling 'fo':   h_t = f * h_{t-1} + (1 - f) * z          y = o * h
    pooling 'ifo':  h_t = f * h_{t-1} + i * z                y = o * h

Gates don't read h: all gates of a row are one matmul, and the recurrence is
elementwise, `ops.linear_scan`. The projection's kernel is W_0, ..., W_{k-1}
concatenated, each with z, f, o, i in this order. The output is y, or W_o y + b
where S differs from the model's width D. Shapes: x BxLxD, h and y BxS; the
state also has the k - 1 inputs before a step, BxWxD. With g gates there are
g S (k D + 1) parameters, and S D + D of the output.
Source: Bradbury et al., "Quasi-Recurrent Neural Networks", 2016.
"""

import dataclasses
from typing import ClassVar
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import vector
from rnn_jax.ops import devices
from rnn_jax.ops import linear_scan

GATES = {'f': 2, 'fo': 3, 'ifo': 4}  # by pooling
LOGICAL_AXES = vector.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(vector.Config):
  """Options of the cell, section `cell` of a config."""

  taps: int = config_lib.option(2, minimum=1)  # k, inputs that a gate sees
  pooling: str = config_lib.option('fo', choices=tuple(GATES))  # or 'f', 'ifo'
  forget_bias: float = 1.0  # initial b of f, which keeps h

  impls: ClassVar[tuple[str, ...]] = base.impls_of(linear_scan.IMPLS)
  excludes: ClassVar[tuple[str, ...]] = ()

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    base.check_inputs(config)
    base.check_shards(config)


class State(NamedTuple):
  """The state between two steps."""

  h_BxS: jax.Array
  inputs_BxWxD: jax.Array


class Cell(vector.Cell, base.ParallelCell):
  """The cell; see the module's docstring."""

  @property
  def parts(self) -> int:  # type: ignore[override]
    return GATES[self.config.pooling]

  def gate_biases(self) -> tuple[float, ...]:
    return (0.0, self.config.forget_bias, 0.0, 0.0)[: self.parts]

  def init_state(self, B: int) -> State:
    return State(
      jnp.zeros((B, self.state_width)),
      jnp.zeros((B, self.config.taps - 1, self.inputs or self.width)),
    )

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    return x_BxLxD  # the gates read earlier inputs from the state

  def gates(self, state: State, u: jax.Array) -> base.Gates:
    _, (_, f, *others) = self._raw(state, u[:, None], None)
    f, *others = (x[:, 0] for x in (f, *others))
    values = {'keep': jax.nn.sigmoid(f)}
    values['write'] = jax.nn.sigmoid(others[1] if self.parts == 4 else -f)
    if others:
      values['read'] = jax.nn.sigmoid(others[0])
    return base.Gates(values, jax.nn.log_sigmoid(f))

  def advance(
    self,
    state: State,
    x_BxLxD: jax.Array,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[State, jax.Array]:
    before, (z, f, *others) = self._raw(state, x_BxLxD, starts_BxL)
    f = jax.nn.sigmoid(f)
    i = jax.nn.sigmoid(others[1]) if self.parts == 4 else 1 - f
    h_BxS, h = devices.current().linear_scan(
      state.h_BxS,
      f,
      i * jnp.tanh(z),
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self.plan.chunk_length,
    )
    y = jax.nn.sigmoid(others[0]) * h if others else h
    state = State(h_BxS, before.astype(jnp.float32))
    return state, y.astype(x_BxLxD.dtype)

  def _raw(self, state, x_BxLxD, starts_BxL):
    """Returns (the inputs for the next step, [z, f] or more of z, f, o, i)."""
    before, x = devices.current().windows(
      state.inputs_BxWxD, x_BxLxD, self.config.taps, starts_BxL
    )
    raw = self.projection(x.reshape(*x.shape[:2], -1))
    return before, vector.split(raw, self.parts)
