"""The quasi-recurrent network: gates of a convolution, a linear recurrence.

    z = tanh(sum_{d<k} W_d x_{t-d} + b)
    i, f, o = sigmoid(sum_{d<k} W_d x_{t-d} + b)

    pooling 'f':    h_t = f * h_{t-1} + (1 - f) * z          y = h
    pooling 'fo':   h_t = f * h_{t-1} + (1 - f) * z          y = o * h
    pooling 'ifo':  h_t = f * h_{t-1} + i * z                y = o * h

No gate reads h: all gates of a row are one matmul, and the recurrence is
elementwise, `ops.linear_scan`. W_0, ..., W_{k-1} lie behind one another in the
projection, and hold z, f, o, i in this order. The output is y, or W_o y + b
where S differs from the width D of the model. Shapes: x BxLxD, h and y BxS, the
state also the k - 1 inputs before a step, BxWxD. With g gates there are
g S (k D + 1) parameters, and S D + D of the output.
Source: Bradbury et al., "Quasi-Recurrent Neural Networks", 2016.
"""

import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells.parts import vector
from rnn_jax.parallel import sequence

GATES = {'f': 2, 'fo': 3, 'ifo': 4}  # by pooling
LETTERS = vector.LETTERS


@dataclasses.dataclass(frozen=True)
class Config(vector.Config):
  """Options of the cell, section `cell` of the config."""

  taps: int = 2  # k, inputs that a gate sees
  pooling: str = 'fo'  # or 'f', 'ifo'
  forget_bias: float = 1.0  # b of f at the start: what is kept of h

  impls = ('auto', 'scan', 'chunked', 'associative', 'native')

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.taps < 1:
      self._refuse('taps', 'give 1 or more')
    if self.pooling not in GATES:
      self._refuse('pooling', f'choose one of {tuple(GATES)}')
    model = config.model
    if model.embedding_width not in (0, model.width):
      raise errors.InputError(
        f"model.embedding_width={model.embedding_width}: model.cell='qrnn' "
        f'keeps inputs of one width: give model.width={model.width}, or 0'
      )
    super().check(config)

  def _check_sequence(self, config):
    if config.mesh.sequence != 1 and config.remat.every:
      raise errors.InputError(
        f'remat.every={config.remat.every!r}: with mesh.sequence='
        f"{config.mesh.sequence} model.cell='qrnn' keeps all states: give 0"
      )


class State(NamedTuple):
  """What one step hands to the next."""

  h_BxS: Any
  inputs_BxWxD: Any


class Cell(vector.Cell):
  """The cell; see the module's docstring."""

  @property
  def parts(self):
    return GATES[self.config.pooling]

  def gate_biases(self):
    return (0.0, self.config.forget_bias, 0.0, 0.0)[: self.parts]

  def init_state(self, B):
    return State(
      jnp.zeros((B, self.state_width)),
      jnp.zeros((B, self.config.taps - 1, self.width)),
    )

  def project(self, x_BxLxD):
    return x_BxLxD  # what gates see of the past is the state's

  def step(self, state, u):
    state, y = self._advance(state, (u[:, None], None), 'step')
    return state, y[:, 0]

  def gates(self, state, u):
    _, (_, f, *others) = self._raw(state, u[:, None], None)
    f, *others = (x[:, 0] for x in (f, *others))
    values = {'keep': jax.nn.sigmoid(f)}
    values['write'] = jax.nn.sigmoid(others[1] if self.parts == 4 else -f)
    if others:
      values['read'] = jax.nn.sigmoid(others[0])
    return base.Gates(values, jax.nn.log_sigmoid(f))

  def recur(self, state, u, starts_BxL):
    if self.plan.impl == 'scan':
      return base.scan_steps(self, state, u, starts_BxL)
    run = functools.partial(type(self)._advance, impl=self.plan.impl)
    return base.in_segments(run, self, state, (u, starts_BxL))

  def _advance(self, state, inputs, impl):
    """Any number of steps; `step` and `recur` are this."""
    x_BxLxD, starts_BxL = inputs
    before, (z, f, *others) = self._raw(state, x_BxLxD, starts_BxL)
    f = jax.nn.sigmoid(f)
    i = jax.nn.sigmoid(others[1]) if self.parts == 4 else 1 - f
    h_BxS, h = sequence.linear_scan(
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
    """Returns (inputs for what comes next, z, f, o, i as far as there are)."""
    before, x = sequence.windows(
      state.inputs_BxWxD, x_BxLxD, self.config.taps, starts_BxL
    )
    raw = self.projection(x.reshape(*x.shape[:2], -1))
    return before, vector.split(raw, self.parts)
