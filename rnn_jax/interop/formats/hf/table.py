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
import math
import pathlib
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
from rnn_jax import errors
from rnn_jax import files
from rnn_jax.cells import attention
from rnn_jax.config import pattern as pattern_lib
from rnn_jax.interop.formats.hf import architectures
from rnn_jax.models import period

ACTIVATIONS = {  # hidden_act and the gated MLP that has it
  'silu': 'swiglu',
  'swish': 'swiglu',
  'gelu': 'geglu',
  'gelu_pytorch_tanh': 'geglu_tanh',
}
LENGTH = 'original_max_position_embeddings'
SCALINGS: dict[str, tuple[str, ...]] = {  # rope_type and what it needs
  'default': (),
  'linear': ('factor',),
  'llama3': (
    'factor',
    'low_freq_factor',
    'high_freq_factor',
    LENGTH,
  ),
  'yarn': (
    'factor',
    'beta_slow',
    'beta_fast',
    LENGTH,
    'attention_factor',
  ),
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


@dataclasses.dataclass(frozen=True)
class Keys:
  """The keys of a config.json, of which wrong ones are refused by name."""

  path: pathlib.Path | str
  values: dict[str, Any]

  def whole(self, name: str, default: int | None = None) -> int:
    """Returns a whole number; null and a missing one are the default."""
    value = self._get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
      self.refuse(name, value, 'give a whole number')
    return value

  def number(self, name: str, default: float | None = None) -> float:
    """Returns a number; null and a missing one are the default."""
    value = self._get(name, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
      self.refuse(name, value, 'give a number')
    return float(value)

  def flag(self, name: str, default: bool) -> bool:
    """Returns a flag; null and a missing one are the default."""
    value = self._get(name, default)
    if not isinstance(value, bool):
      self.refuse(name, value, 'give true or false')
    return value

  def one_of(self, name: str, allowed: Any, default: Any) -> Any:
    """Returns a value that must be among the `allowed`."""
    value = self._get(name, default)
    if value not in allowed:
      self.refuse(name, value, f'only {[*allowed]} are supported')
    return value

  def rotary(
    self, kinds: Sequence[str] = ('default',), default: float = 10_000.0
  ) -> float:
    """Returns the base of rotary positions, named in either of two ways.

    Args:
      kinds: values of rope_type that are supported.
      default: the base, unless the keys say.
    """
    given = self._rotary()
    given.one_of('rope_type', kinds, 'default')
    base = given.number('rope_theta', default)
    if base <= 1:
      given.refuse('rope_theta', base, 'give a number above 1')
    return base

  def rotary_scaling(self) -> tuple[float, ...]:
    """Returns the scaling of rotary positions of a kind of SCALINGS."""
    given = self._rotary()
    kind = given.values['rope_type']
    defaults = self._yarn(given) if kind == 'yarn' else {}
    return tuple(given.number(x, defaults.get(x)) for x in SCALINGS[kind])

  def _yarn(self, given):
    """Returns what transformers takes for keys of YaRN that aren't given."""
    given.one_of('truncate', (True,), True)
    log = 0.1 * math.log(max(1, given.number('factor')))
    scale, share = given.number('mscale', 0), given.number('mscale_all_dim', 0)
    return {
      'beta_slow': 1,
      'beta_fast': 32,
      LENGTH: self._get(LENGTH, self.values.get('max_position_embeddings')),
      'attention_factor': (1 + scale * log) / (1 + share * log)
      if scale and share
      else 1 + log,
    }

  def _rotary(self):
    old = {'rope_theta': self.values.get('rope_theta')}
    given = self.values.get('rope_parameters') or {
      **old,
      **(self.values.get('rope_scaling') or {}),
    }
    kind = given.get('rope_type', given.get('type', 'default'))
    return Keys(self.path, old | given | {'rope_type': kind})

  def rotated(self, head: int, default: float) -> int:
    """Returns how many of a head's channels rotate; 0: all.

    Args:
      head: its channels.
      default: the share that rotates, unless the keys say.
    """
    name = 'partial_rotary_factor'
    newer = Keys(self.path, self.values.get('rope_parameters') or {})
    factor = newer.number(name, self.number(name, default))
    rotated = int(head * factor)
    if rotated % 2 or not 0 < rotated <= head:
      self.refuse(
        name, factor, f'{rotated} of {head} channels would be rotated'
      )
    return rotated % head

  def refuse(self, name: str, value: Any, remedy: str) -> None:
    """Raises InputError about a key."""
    raise errors.InputError(f'{self.path}: {name}={value!r}: {remedy}')

  def _get(self, name, default):
    value = self.values.get(name)
    return default if value is None else value


def read_json(path: pathlib.Path) -> Any:
  """Returns the value of a file.

  Raises:
    InputError: it can't be read, or isn't JSON of an object.
  """
  try:
    value = files.read_json(path, finite=False)  # theirs has Infinity
    if not isinstance(value, dict):
      raise ValueError('no object')
  except OSError as error:
    raise errors.InputError(f'{path}: {error.strerror}') from error
  except ValueError as error:
    raise errors.InputError(
      f"{path} isn't valid JSON ({error}): get it again"
    ) from error
  return value


def read_keys(path: pathlib.Path) -> Keys:
  """Returns the keys of a config.json, or raises InputError."""
  return Keys(path, read_json(path))


def known(first: str | None = None) -> list[tuple[types.ModuleType, str]]:
  """Returns (architecture, model_type) of all, those of `first` first."""
  listed = []
  for module in sorted(x.name for x in pkgutil.iter_modules(_PATH)):
    one = importlib.import_module(f'{architectures.__name__}.{module}')
    listed += [(one, model_type) for model_type in one.MODEL_TYPES]
  return sorted(listed, key=lambda pair: pair[1] != first)


def find(keys: Keys) -> types.ModuleType:
  """Returns the architecture of a config.json.

  Raises:
    InputError: there is none; the message lists those that there are.
  """
  model_type = keys.values.get('model_type')
  by_type = {name: one for one, name in known()}
  if model_type not in by_type:
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


def rotary(base: float, scaling: tuple[float, ...]) -> dict[str, Any]:
  """Returns rope_parameters, the inverse of Keys.rotary and its scaling."""
  kinds = {len(names): kind for kind, names in SCALINGS.items()}
  kind = kinds[len(scaling)]
  values: dict[str, Any] = dict(zip(SCALINGS[kind], scaling, strict=True))
  if LENGTH in values:
    values[LENGTH] = int(values[LENGTH])
  return {'rope_type': kind, 'rope_theta': base} | values


def partial_rotary(cell: attention.Config) -> dict[str, Any]:
  """Returns rope_parameters with the share of channels that rotate."""
  rotated = cell.rotary_width or cell.head_width
  share = {'partial_rotary_factor': rotated / cell.head_width}
  return rotary(cell.rotary, cell.rotary_scaling) | share


def activation(mlp: str) -> str:
  """Returns the first hidden_act of an MLP, or our name where it has none."""
  return next((act for act, ours in ACTIVATIONS.items() if ours == mlp), mlp)


_PATH = architectures.__path__
