"""Hybrids: a pattern of cells, which the layers repeat.

    model.cells = ('kda', 'kda', 'kda', 'attention')        model.layers = 8

is a model of two *periods* of four layers. Section `cell` then has a section
for each distinct cell, cell.kda.heads or cell.attention.window; the layers of
one cell share its options. A module of the user, 'mypackage.mycell', has
section cell.mycell.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any
from typing import Self

from rnn_jax import errors
from rnn_jax.config import conditions


def section_name(cell: str) -> str:
  """Returns the name of a cell's section within section `cell`."""
  return cell.rpartition('.')[2]


def names(raw: Any) -> tuple[str, ...]:
  """Returns the names in a raw value of model.cells; () if it has others."""
  if not isinstance(raw, (list, tuple)):
    return ()
  return tuple(raw) if all(isinstance(name, str) for name in raw) else ()


@dataclasses.dataclass(frozen=True)
class Options:
  """Base of the options of a pattern, which has a field for each cell."""

  def of(self, cell: str) -> Any:
    """Returns the options of one of the cells."""
    return getattr(self, section_name(cell))

  @property
  def dropout(self) -> float:
    """The highest dropout of a cell."""
    return max(options.dropout for _, options in sections(self))

  def check(self, config: Any) -> None:
    """Checks the options of each cell against the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for name in dict.fromkeys(config.model.cells):
      own = of_cell(config, name)
      try:
        conditions.check(own, 'cell')
        conditions.check_part(own, own.cell, f'model.cell={name!r}')
        own.cell.check(own)
      except errors.InputError as error:
        key = f'cell.{section_name(name)}.'
        raise errors.InputError(re.sub(r'\bcell\.', key, str(error))) from None

  def resolve(self, config: Any) -> Self:
    """Returns the options, defaults that depend on `config` filled in."""
    resolved = {}
    for name in dict.fromkeys(config.model.cells):
      own = of_cell(config, name)
      resolved[section_name(name)] = own.cell.resolve(own)
    return dataclasses.replace(self, **resolved)


def sections(cell: Any) -> list[tuple[str, Any]]:
  """Returns (section, options) of each distinct cell of a Config's `cell`."""
  if not isinstance(cell, Options):
    return [('cell', cell)]
  names = [field.name for field in dataclasses.fields(cell)]
  return [(f'cell.{name}', getattr(cell, name)) for name in names]


def of_cell(config: Any, name: str) -> Any:
  """Returns the Config of a model with only one of a pattern's cells."""
  return dataclasses.replace(
    config, model=config.model.of_cell(name), cell=config.cell.of(name)
  )


def options(configs: Mapping[str, type]) -> type:
  """Returns the dataclass with the options of a pattern's cells.

  Args:
    configs: the Config class of each distinct cell, by its name.

  Raises:
    InputError: two cells have the same name after their last dot.
  """
  fields: dict[str, type] = {}
  for cell, cls in configs.items():
    name = section_name(cell)
    if name in fields:
      raise errors.InputError(
        f'model.cells={(*configs,)!r}: two cells would have section '
        f'cell.{name}: rename one of the modules'
      )
    fields[name] = cls
  return dataclasses.make_dataclass(
    'Cells',
    [
      (name, cls, dataclasses.field(default=cls()))
      for name, cls in fields.items()
    ],
    bases=(Options,),
    frozen=True,
  )


def check(model: Any) -> None:
  """Checks the pattern of a Model config.

  Raises:
    InputError: it isn't one, or something else in the section contradicts it.
  """
  cells = model.cells
  if not cells:
    return
  if model.cell != (default := type(model)().cell):
    errors.refuse(
      'model.cell',
      model.cell,
      f'model.cells={cells!r} says which cells: leave it at {default!r}',
    )
  if len({*cells}) == 1:
    errors.refuse(
      'model.cells', cells, f'it names one cell: give model.cell={cells[0]!r}'
    )
  for size in range(2, len(cells) // 2 + 1):
    if cells[:size] * (len(cells) // size) == cells:
      errors.refuse(
        'model.cells', cells, f'layers repeat a pattern: give {cells[:size]!r}'
      )
  if model.layers % len(cells):
    errors.refuse(
      'model.layers',
      model.layers,
      f'give a multiple of the {len(cells)} cells of model.cells={cells!r}',
    )
  if model.embedding_width not in (0, model.width):
    errors.refuse(
      'model.embedding_width',
      model.embedding_width,
      'all periods of model.cells are alike, and this makes the first layer '
      'differ: give 0',
    )
