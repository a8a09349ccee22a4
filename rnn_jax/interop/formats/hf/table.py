"""What an architecture says: which part of ours each of its tensors is.

A file of `architectures` has

    MODEL_TYPES                       values of model_type in config.json
    CELLS                             cells that such a model may have
    options(keys)                     options of ours by key, from config.json
    describe(config, model_type)      the inverse: keys of config.json
    tensors(config, vocabulary)       a Tensor for each tensor of the folder
    joined(config)                    a Joined for each that a folder may have
                                      in place of several; can be left out

A Tensor is one or more views of one of our arrays, with axes in the order of
theirs. So one table reads and writes, and what it places returns bit for bit.
"""

import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.config import pattern as pattern_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import architectures
from rnn_jax.models import period

ACTIVATIONS = {  # hidden_act and the gated MLP that has it
  'silu': 'swiglu',
  'swish': 'swiglu',
  'gelu': 'geglu',
  'gelu_pytorch_tanh': 'geglu_tanh',
}


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

  def place(self, leaf: np.ndarray, tensor: np.ndarray) -> None:
    """Copies their tensor into our whole array."""
    flat, begin = tensor.reshape(-1), 0
    for part in self._parts(leaf):
      part[...] = flat[begin : begin + part.size].reshape(part.shape)
      begin += part.size

  def take(self, leaf: np.ndarray) -> np.ndarray:
    """Returns their tensor from our whole array."""
    parts = [part.reshape(-1) for part in self._parts(leaf)]
    return np.concatenate(parts).reshape(self.shape)

  def _parts(self, leaf):
    own = leaf if self.layer is None else leaf[self.layer]
    parts = self.view(own)
    parts = parts if isinstance(parts, list) else [parts]
    assert all(np.may_share_memory(part, own) for part in parts), self.name
    return parts


class Joined(NamedTuple):
  """A tensor that has the numbers of others, one after the other."""

  name: str
  shape: tuple[int, ...]
  parts: list[str]  # names of Tensors


def known(first: str | None = None) -> list[tuple[types.ModuleType, str]]:
  """Returns (architecture, model_type) of all, those of `first` first."""
  listed = []
  for module in sorted(x.name for x in pkgutil.iter_modules(_PATH)):
    one = importlib.import_module(f'{architectures.__name__}.{module}')
    listed += [(one, model_type) for model_type in one.MODEL_TYPES]
  return sorted(listed, key=lambda pair: pair[1] != first)


def find(keys: keys_lib.Keys) -> types.ModuleType:
  """Returns the architecture of a config.json.

  Raises:
    InputError: there is none; the message lists those that there are.
  """
  by_type = {name: one for one, name in known()}
  model_type = keys.get('model_type')
  if not isinstance(model_type, str) or model_type not in by_type:
    keys.refuse('model_type', model_type, f'choose one of {[*by_type]}')
  return by_type[model_type]


def patterned(
  cells: Sequence[str], own: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
  """Returns the options of a pattern and of its cells.

  Args:
    cells: of all layers; the shortest pattern that they repeat is ours.
    own: options of each cell, which may have others.
  """
  sizes = [n for n in range(1, len(cells) + 1) if len(cells) % n == 0]
  pattern = next(
    tuple(cells[:n])
    for n in sizes
    if [*cells[:n]] * (len(cells) // n) == [*cells]
  )
  several = len(pattern) > 1
  return {
    **({'model.cells': pattern} if several else {'model.cell': pattern[0]}),
    'model.layers': len(cells),
    **{
      f'cell.{name}.{key}' if several else f'cell.{key}': value
      for name in dict.fromkeys(cells)
      for key, value in own[name].items()
    },
  }


def of_cell(config: config_lib.Config, cell: str) -> config_lib.Config:
  """Returns the Config of a model with only one of a pattern's cells."""
  return pattern_lib.of_cell(config, cell) if config.model.cells else config


def describe_layers(
  config: config_lib.Config,
  kinds: Mapping[str, str],
  describe: Mapping[str, Callable[[Any], dict[str, Any]]],
) -> dict[str, Any]:
  """Returns layer_types of a hybrid, and the keys of its cells.

  Args:
    config: of the model.
    kinds: {a kind in layer_types: our cell}.
    describe: {our cell: what returns the keys of its options}.
  """
  keys: dict[str, Any] = {}
  for cell, described in describe.items():
    if cell in config.model.pattern:
      keys |= described(of_cell(config, cell).cell)
  by_cell = {cell: kind for kind, cell in kinds.items()}
  cells = config.model.pattern * config.model.periods
  return keys | {'layer_types': [by_cell[cell] for cell in cells]}


def layers(model: config_lib.Model) -> Iterator[tuple[str, int | None, str]]:
  """Yields (prefix of our leaves, place on their first axis, cell) of each.

  The place is None where the first period is separate.
  """
  pattern, differs = model.pattern, model.experts.dense_layers > 0
  for n in range(model.layers):
    entry = f'.{period.ENTRY}_{n % len(pattern)}' if model.cells else ''
    place, cell = n // len(pattern), pattern[n % len(pattern)]
    if differs and not place:
      yield f'stack.first{entry}', None, cell
    else:
      yield f'stack.blocks{entry}', place - differs, cell


def ends(
  model: config_lib.Model, vocabulary: int, names: tuple[str, str]
) -> list[Tensor]:
  """Returns the embedding, the last norm's scale and an untied head.

  `names` are those of the embedding and the norm.
  """
  embedding, norm = names
  width = model.width
  head = Tensor(
    'lm_head.weight', (vocabulary, width), 'head.kernel', np.transpose
  )
  return [
    Tensor(f'{embedding}.weight', (vocabulary, width), 'embedding.embedding'),
    scale(norm, 'norm', width),
    *([] if model.tied else [head]),
  ]


class Dense(NamedTuple):
  """A linear layer: a matrix, and a bias with the same rows."""

  name: str
  leaf: str  # ours
  shape: tuple[int, int]
  biased: bool = False
  view: Callable[[np.ndarray], Any] = np.transpose


def dense(
  rows: Iterable[Dense], theirs: str, ours: str, layer: int | None
) -> list[Tensor]:
  """Returns the tensors of linear layers.

  Args:
    rows: the layers.
    theirs: prefix of their names.
    ours: prefix of our names.
    layer: its place.
  """
  listed = []
  for row in rows:
    kinds: dict[str, tuple[str, tuple[int, ...]]]
    kinds = {'weight': ('kernel', row.shape)}
    if row.biased:
      kinds['bias'] = 'bias', row.shape[:1]
    for kind, (leaf, shape) in kinds.items():
      names = f'{theirs}.{row.name}.{kind}', f'{ours}.{row.leaf}.{leaf}'
      listed.append(Tensor(names[0], shape, names[1], row.view, layer))
  return listed


def others(
  rows: Iterable[tuple[str, tuple[int, ...], str, Callable[..., Any]]],
  theirs: str,
  ours: str,
  layer: int | None,
) -> list[Tensor]:
  """Returns tensors that aren't linear layers.

  Args:
    rows: (name, shape, our leaf, view) of each; see Tensor.
    theirs: prefix of their names.
    ours: prefix of our names.
    layer: its place.
  """
  return [
    Tensor(f'{theirs}.{name}', shape, f'{ours}.{leaf}', view, layer)
    for name, shape, leaf, view in rows
  ]


def scale(
  theirs: str, ours: str, width: int, layer: int | None = None
) -> Tensor:
  """Returns the scale of a norm; `theirs` and `ours` are its names."""
  return Tensor(f'{theirs}.weight', (width,), f'{ours}.scale', layer=layer)


def activation(mlp: str) -> str:
  """Returns the first hidden_act of an MLP, or our name where it has none."""
  return next((act for act, ours in ACTIVATIONS.items() if ours == mlp), mlp)


_PATH = architectures.__path__
