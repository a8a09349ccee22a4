"""The table of a format: which part of ours each of its tensors is.

A Tensor is one or more views of one of our arrays, with axes in the order of
theirs; a Joined is one that a file may have in place of some of these. So one
table reads and writes, and what it places returns bit for bit.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.config import pattern as pattern_lib
from rnn_jax.models import period


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a folder.

  Attributes:
    name: in the folder.
    shape: in the folder.
    leaf: our array that has it, 'stack.blocks.mlp.up.kernel'.
    view: returns a view of that array, or of a layer's part of it; or several,
      whose rows follow each other in theirs.
    layer: its place on the first axis of the array, if layers are stacked.
  """

  name: str
  shape: tuple[int, ...]
  leaf: str
  view: Callable[[np.ndarray], np.ndarray | list[np.ndarray]] = np.asarray
  layer: int | None = None

  def within(self, theirs: str, ours: str, layer: int | None) -> 'Tensor':
    """Returns it with prefixes of both names, and its place."""
    name, leaf = f'{theirs}.{self.name}', f'{ours}.{self.leaf}'
    return dataclasses.replace(self, name=name, leaf=leaf, layer=layer)

  def named(self, rename: Callable[[str], str]) -> 'Tensor':
    """Returns it with another name."""
    return dataclasses.replace(self, name=rename(self.name))

  def views(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Returns the views, of our arrays by name."""
    leaf = arrays[self.leaf]
    own = leaf if self.layer is None else leaf[self.layer]
    views = self.view(own)
    views = views if isinstance(views, list) else [views]
    assert all(np.may_share_memory(view, own) for view in views), self.name
    return views


class Joined(NamedTuple):
  """A tensor that has the numbers of others, one after the other."""

  name: str
  shape: tuple[int, ...]
  parts: list[str]  # names of Tensors
  written: bool = False  # in place of its parts; else it is only read

  def within(self, theirs: str, ours: str, layer: int | None) -> 'Joined':
    """Returns it with a prefix of its names."""
    del ours, layer
    return self.named(lambda name: f'{theirs}.{name}')

  def named(self, rename: Callable[[str], str]) -> 'Joined':
    """Returns it with other names."""
    parts = [rename(part) for part in self.parts]
    return self._replace(name=rename(self.name), parts=parts)


Row = Tensor | Joined


class Stored(NamedTuple):
  """A tensor that a file has: a Tensor, or several that are joined."""

  shape: tuple[int, ...]
  parts: list[Tensor]

  def place(self, arrays: Mapping[str, np.ndarray], tensor: np.ndarray) -> None:
    """Copies it into our arrays by name."""
    flat, begin = tensor.reshape(-1), 0
    for view in self._views(arrays):
      view[...] = flat[begin : begin + view.size].reshape(view.shape)
      begin += view.size

  def take(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns it from our arrays by name."""
    views = [view.reshape(-1) for view in self._views(arrays)]
    return np.concatenate(views).reshape(self.shape)

  def _views(self, arrays):
    return [view for part in self.parts for view in part.views(arrays)]


def stored(
  rows: Iterable[Row], names: Container[str] = ()
) -> dict[str, Stored]:
  """Returns the tensors of a file that has some names, by name.

  Args:
    rows: of the format.
    names: those of joined tensors are in place of their parts.
  """
  rows = [*rows]
  found = {x.name: Stored(x.shape, [x]) for x in rows if isinstance(x, Tensor)}
  joined = [row for row in rows if isinstance(row, Joined)]
  chosen = [row for row in joined if row.name in names]
  # Then what is written, where nothing has taken its parts.
  for row in (*chosen, *(row for row in joined if row.written)):
    if {*row.parts} <= found.keys():
      parts = [x for name in row.parts for x in found.pop(name).parts]
      found[row.name] = Stored(row.shape, parts)
  return found


def zeros(like: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Returns arrays of these shapes; what a format lacks stays at zero."""
  return {name: np.zeros(x.shape, np.float32) for name, x in like.items()}


def of_cell(config: config_lib.Config, cell: str) -> config_lib.Config:
  """Returns the Config of a model with only one of a pattern's cells."""
  return pattern_lib.of_cell(config, cell) if config.model.cells else config


def layers(model: config_lib.Model) -> Iterator[tuple[str, int | None, str]]:
  """Yields (prefix of our leaves, place on their first axis, cell) of each.

  The place is None where the first period is separate.
  """
  inner = model.embedding_width or model.width
  differs = model.experts.dense_layers > 0 or inner != model.width
  pattern = model.pattern
  for n in range(model.layers):
    entry = f'.{period.ENTRY}_{n % len(pattern)}' if model.cells else ''
    place, cell = n // len(pattern), pattern[n % len(pattern)]
    if differs and not place:
      yield f'stack.first{entry}', None, cell
    else:
      yield f'stack.blocks{entry}', place - differs, cell


class Names(NamedTuple):
  """Names of a language model's parts in theirs."""

  embedding: str
  norm: str  # after the layers
  layers: str  # prefix of their numbers
  embedding_norm: str = ''
  positions: str = ''  # if they are learned
  optional: str = ''  # a prefix that a folder may leave out
  instead: str = ''  # what such a folder has in its place
  absent: str = ''  # tensors of the first layer that a folder lacks begin so


def stack(
  config: config_lib.Config,
  vocabulary: int,
  names: Names,
  layer: Callable[[config_lib.Config], Iterable[Row]],
) -> list[Row]:
  """Returns the table of a language model.

  Args:
    config: of the model.
    vocabulary: its size.
    names: of its parts.
    layer: returns the rows of a layer, from the Config of a model of such
      layers.
  """
  model, width = config.model, config.model.width
  matrix = vocabulary, width
  rows: list[Row] = [
    Tensor(f'{names.embedding}.weight', matrix, 'embedding.embedding'),
    *([] if model.tied else dense('lm_head', 'head', matrix)),
  ]
  if model.positions == 'learned':
    shape = model.max_positions, width
    leaf = 'positions.table.embedding'
    rows.append(Tensor(f'{names.positions}.weight', shape, leaf))
  norms = {'norm': names.norm}
  if model.embedding_norm:
    norms['embedding_norm'] = names.embedding_norm
  for ours, theirs in norms.items():
    rows.append(scale(theirs, ours, width))
    if model.norm == 'layer':
      rows.append(shift(theirs, ours, width))
  for n, (ours, place, cell) in enumerate(layers(model)):
    own = of_cell(config, cell)
    part = own.model.routed
    if model.mlps:
      part = own.model.of_mlp(model.mlps[n % len(model.mlps)])
    elif n < model.experts.dense_layers:
      part = own.model.dense
    own = dataclasses.replace(own, model=part)
    rows += within(f'{names.layers}.{n}', ours, layer(own), place)
  if names.absent:
    rows = [row for row in rows if not row.name.startswith(names.absent)]
  if names.optional:
    rows += renamed(
      [row for row in rows if row.name.startswith(names.optional)],
      names.optional,
      names.instead,
    )
  return rows


def within(
  theirs: str, ours: str, rows: Iterable[Row], layer: int | None = None
) -> list[Row]:
  """Returns rows with prefixes of both names, and the place of their layer."""
  return [row.within(theirs, ours, layer) for row in rows]


def dense(
  name: str,
  leaf: str,
  shape: tuple[int, int],
  biased: bool = False,
  view: Callable[[np.ndarray], Any] = np.transpose,
) -> list[Tensor]:
  """Returns a linear layer: a matrix, and maybe a bias with the same rows."""
  rows = [Tensor(f'{name}.weight', shape, f'{leaf}.kernel', view)]
  if biased:
    rows.append(Tensor(f'{name}.bias', shape[:1], f'{leaf}.bias', view))
  return rows


def scale(name: str, leaf: str, width: int) -> Tensor:
  """Returns the scale of a norm."""
  return Tensor(f'{name}.weight', (width,), f'{leaf}.scale')


def shift(name: str, leaf: str, width: int) -> Tensor:
  """Returns the bias of a norm."""
  return Tensor(f'{name}.bias', (width,), f'{leaf}.bias')


def layer_norm(name: str, leaf: str, width: int) -> list[Tensor]:
  """Returns the scale and the bias of a norm."""
  return [scale(name, leaf, width), shift(name, leaf, width)]


def renamed(rows: Iterable[Row], older: str, newer: str) -> list[Joined]:
  """Returns tensors that may begin with another name than `older`."""
  return [
    Joined(
      newer + x.name.removeprefix(older),
      x.shape,
      x.parts if isinstance(x, Joined) else [x.name],
    )
    for x in rows
  ]


def head_view(
  widths: Mapping[str, int], part: str, heads: int, step: int = 1
) -> Callable[[np.ndarray], np.ndarray]:
  """Returns the view of a part, of columns that are head by head.

  `widths` are those of all parts of a head, in order.
  """
  names = [*widths]
  begin = sum(widths[name] for name in names[: names.index(part)])
  end = begin + widths[part]
  return lambda x: x[::step].T.reshape(heads, -1, *x.shape[:-1])[:, begin:end]


def projected(
  names: Mapping[str, str],
  widths: Mapping[str, int],
  heads: int,
  width: int,
  biased: bool = False,
) -> list[Tensor]:
  """Returns the matrices of parts that ours projects by one, head by head.

  Args:
    names: {part: the name of its matrix}.
    widths: as of `head_view`.
    heads: their number.
    width: of the inputs.
    biased: whether each has a bias.
  """
  return [
    row
    for part, name in names.items()
    for row in dense(
      name,
      'projection',
      (heads * widths[part], width),
      biased,
      head_view(widths, part, heads),
    )
  ]


def convolved(
  names: Mapping[str, str], widths: Mapping[str, int], heads: int, taps: int
) -> list[Tensor]:
  """Returns the taps of parts, oldest first; arguments as of `projected`."""
  return [
    Tensor(
      f'{name}.weight',
      (heads * widths[part], 1, taps),
      'taps',
      head_view(widths, part, heads, step=-1),
    )
    for part, name in names.items()
  ]


def low_rank(x: np.ndarray) -> np.ndarray:
  """Returns the view HxKxR of a map HxRxK from a low rank."""
  return x.swapaxes(1, 2)
