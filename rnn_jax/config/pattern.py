"""Hybrids: a pattern of cells, which the layers repeat.

    model.cells = ('kda', 'kda', 'kda', 'attention')        model.layers = 8

is a model of two *periods* of four layers. Section `cell` then has a section
for each distinct cell, cell.kda.heads or cell.attention.window; the layers of
one cell share its options. A module of the user, 'mypackage.mycell', has
section cell.mycell.

    model.mlps = ('none', 'none', 'mlp', 'experts')

says what follows each of these cells: nothing, an MLP, or experts. Where layers
have experts, the MLP of others is model.experts.dense_width wide.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any
from typing import Self

from rnn_jax import errors
from rnn_jax.config import conditions

MLPS = ('mlp', 'experts', 'none')  # what follows a cell


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
  """Base of the options of several cells, with a field for each.

  They are those of a pattern, or of a cell that runs others side by side.
  """

  def of(self, cell: str) -> Any:
    """Returns the options of one of the cells."""
    return getattr(self, section_name(cell))

  def cells(self, config: Any) -> tuple[str, ...]:
    """Returns the names of the distinct cells of a Config."""
    return tuple(dict.fromkeys(config.model.cells))

  @property
  def dropout(self) -> float:
    """The highest dropout of a cell."""
    return max(options.dropout for _, options in sections(self))

  def check(self, config: Any) -> None:
    """Checks the options of each cell against the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for name in self.cells(config):
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
    for name in self.cells(config):
      own = of_cell(config, name)
      resolved[section_name(name)] = own.cell.resolve(own)
    return dataclasses.replace(self, **resolved)


def sections(cell: Any) -> list[tuple[str, Any]]:
  """Returns (section, options) of each distinct cell of a Config's `cell`."""
  if not isinstance(cell, Options):
    return [('cell', cell)]
  named = [(x.name, getattr(cell, x.name)) for x in dataclasses.fields(cell)]
  return [
    (f'cell.{name}', options)
    for name, options in named
    if dataclasses.is_dataclass(options)
  ]


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
  _check_mlps(model)
  if model.shared_block.count:  # its layers differ, and so cells may repeat
    return
  if len({*cells}) == 1 and not model.mlps:
    errors.refuse(
      'model.cells', cells, f'it names one cell: give model.cell={cells[0]!r}'
    )
  layers = tuple(zip(cells, model.mlps or cells, strict=True))
  for size in range(2, len(cells) // 2 + 1):
    if layers[:size] * (len(cells) // size) == layers:
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


def _check_mlps(model):
  mlps, cells = model.mlps, model.cells
  if not mlps:
    return
  if len(mlps) != len(cells) or not {*mlps} <= {*MLPS}:
    errors.refuse(
      'model.mlps',
      mlps,
      f'give one of {MLPS} for each of model.cells={cells!r}, or ()',
    )
  if len({*mlps}) == 1:
    errors.refuse('model.mlps', mlps, 'all are alike: give ()')
  if ('experts' in mlps) != (model.experts.count > 0):
    errors.refuse(
      'model.mlps',
      mlps,
      f'model.experts.count={model.experts.count}: give both, or neither',
    )
