"""Mamba-2 and attention side by side: both read x, and their outputs add up.

    y = m_1 mamba2(x) + m_2 attention(x)

with the constants m_1 = `mamba2_multiplier` and m_2 = `attention_multiplier`.
Sections cell.mamba2 and cell.attention have their options, as in a hybrid; the
state is both of theirs.
Source: Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models
Redefining Efficiency and Performance", 2025.
"""

import dataclasses
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import jax

from rnn_jax import config as config_lib
from rnn_jax.cells import attention as attention_cell
from rnn_jax.cells import base
from rnn_jax.cells import mamba2 as mamba2_cell
from rnn_jax.config import pattern

CELLS = {'mamba2': mamba2_cell, 'attention': attention_cell}
LOGICAL_AXES = {
  f'{name}/{path}': axes
  for name, module in CELLS.items()
  for path, axes in module.LOGICAL_AXES.items()
}


@dataclasses.dataclass(frozen=True)
class Config(pattern.Options, base.Config):
  """Options of the cell, section `cell` of a config."""

  mamba2: mamba2_cell.Config = mamba2_cell.Config()
  attention: attention_cell.Config = attention_cell.Config()
  mamba2_multiplier: float = 1.0  # of its output
  attention_multiplier: float = 1.0  # the same

  impls: ClassVar[tuple[str, ...]] = ('auto', 'scan')
  own_states: ClassVar[bool] = True

  def cells(self, config: config_lib.Config) -> tuple[str, ...]:
    del config
    return tuple(CELLS)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    base.Config.check(self, config)
    pattern.Options.check(self, config)

  def of_shard(self, shards: int) -> Self:
    """Returns the options of a device that has 1 / `shards` of all heads."""
    return dataclasses.replace(
      self,
      mamba2=self.mamba2.of_shard(shards),
      attention=self.attention.of_shard(shards),
    )


class Both(NamedTuple):
  """What both cells have: their states, their inputs, what they return."""

  mamba2: Any
  attention: Any


class Cell(base.ParallelCell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    self.mamba2 = _make(self, 'mamba2')
    self.attention = _make(self, 'attention')

  def init_state(self, B: int) -> Both:
    return Both(*(_make(self, x, parent=None).init_state(B) for x in CELLS))

  def state_axes(self) -> Both:
    return Both(*(_make(self, x, parent=None).state_axes() for x in CELLS))

  def project(self, x_BxLxD: jax.Array) -> Both:
    return Both(self.mamba2.project(x_BxLxD), self.attention.project(x_BxLxD))

  def gates(self, state: Both, u: Both) -> base.Gates:
    return self.mamba2.gates(state.mamba2, u.mamba2)

  def advance(
    self, state: Both, u: Both, starts_BxL: jax.Array | None, impl: str
  ) -> tuple[Both, Both]:
    results = [
      cell.advance(*own, starts_BxL, impl)
      for cell, *own in zip(
        (self.mamba2, self.attention), state, u, strict=True
      )
    ]
    states, y = zip(*results, strict=True)
    return Both(*states), Both(*y)

  def emit(self, y: Both) -> jax.Array:
    config = self.config
    return config.mamba2_multiplier * self.mamba2.emit(
      y.mamba2
    ) + config.attention_multiplier * self.attention.emit(y.attention)


def _make(cell, name, **overrides):
  """Returns one of the cells; `overrides` are arguments of the module."""
  own = cell.config.of(name), cell.width, cell.plan, cell.policy, cell.inputs
  return CELLS[name].Cell(*own, **overrides)
