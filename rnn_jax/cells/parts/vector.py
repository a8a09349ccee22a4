"""What cells with a state of S numbers share, read step by step.

    u = W x + b for all steps at once      (state, h) = step(state, u_t)

The output is h, or W_o h + b where S differs from the width D of the model. A
cell's file says how many gates there are, and what `step` makes of them.
"""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.cells import base

LETTERS = {
  'projection/kernel': 'Dx_',
  'projection/bias': '_',
  'recurrent/kernel': 'Sx_',
  'output/kernel': '_xD',
  'output/bias': 'D',
}


@dataclasses.dataclass(frozen=True)
class Config:
  """Options that these cells share, section `cell` of the config."""

  state_width: int = 0  # S; 0: model.width
  dropout: float = 0.0  # on h where it leaves the cell

  impls = ('auto', 'scan')

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.state_width < 0:
      self._refuse('state_width', 'give 1 or more, or 0 for model.width')
    if not 0 <= self.dropout < 1:
      self._refuse('dropout', 'give a number in [0, 1)')
    base.check_impl(config, self.impls)
    self._check_sequence(config)

  def settle(self, config):
    """Returns the options with the width that 0 stands for."""
    return dataclasses.replace(
      self, state_width=self.state_width or config.model.width
    )

  def _check_sequence(self, config):
    if config.mesh.sequence != 1:
      raise errors.InputError(
        f'mesh.sequence={config.mesh.sequence}: model.cell='
        f'{config.model.cell!r} reads a row step by step: give 1'
      )

  def _refuse(self, key, remedy):
    raise errors.InputError(f'cell.{key}={getattr(self, key)!r}: {remedy}')


class Cell(base.Cell):
  """The cell but its `step` and its recurrent weights."""

  parts = 0  # how many S of `projection` there are

  def setup(self):
    self.projection = self.dense(
      self.parts * self.state_width,
      bias_init=self.begin_biases,
      kernel_init=nn.initializers.xavier_uniform(),
    )
    if self.state_width != self.width:
      self.output = self.dense(self.width)
    self.drop = nn.Dropout(self.config.dropout)

  @property
  def state_width(self):
    """S."""
    return self.config.state_width or self.width

  def gate_biases(self):
    """The bias of each gate at the start."""
    return (0.0,) * self.parts

  def begin_biases(self, key, shape, dtype=jnp.float32):
    del key, shape
    return jnp.repeat(jnp.array(self.gate_biases(), dtype), self.state_width)

  def dense(self, width, **options):
    """An nn.Dense under the policy."""
    return nn.Dense(
      width,
      dtype=self.policy.activations,
      dot_general=self.policy.dot_general,
      **options,
    )

  def recurrent_dense(self, gates, **options):
    """What reads h: orthogonal at the start."""
    return self.dense(
      gates * self.state_width,
      kernel_init=nn.initializers.orthogonal(),
      **options,
    )

  def stored(self, h_BxS):
    """h as activations are stored."""
    return h_BxS.astype(self.policy.activations)

  def project(self, x_BxLxD):
    return self.projection(x_BxLxD)

  def emit(self, y):
    y = self.drop(y, deterministic=not self.has_rng('dropout'))
    return self.output(y) if self.state_width != self.width else y


def split(x, parts):
  """Cuts the last axis into equal parts, in float32."""
  return jnp.split(x.astype(jnp.float32), parts, -1)


def keep(kept, old, new):
  """kept * old + (1 - kept) * new."""
  return kept * old + (1 - kept) * new
