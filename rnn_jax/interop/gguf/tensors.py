"""The tensors of a file by llama.cpp's names, as parts of our arrays.

A layer's rows are those of formats/hf under other names, with axes that
llama.cpp has in another order; the numbers of some are computed with:

    ssm_a    -exp(A)    of the rates A, here log_rate
    norms    1 + s      where ours has the scale less one
"""

import dataclasses
import re
import types
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import table
from rnn_jax.interop.gguf import blocks

NAMES = table.Names(
  'token_embd',
  'output_norm',
  'blk',
  embedding_norm='token_embd_norm',
  positions='position_embd',
)
EMBEDDING = 'token_embd.weight'
HEAD = 'output.weight'
BLOCK = re.compile(r'blk\.\d+\.')


class Numbers(NamedTuple):
  """What is done to numbers on the way to a file, and back."""

  write: Callable[[np.ndarray], np.ndarray]
  read: Callable[[np.ndarray], np.ndarray]


def _log_of_negative(x):
  """Returns log(-x).

  Raises:
    ValueError: a number isn't below 0.
  """
  if not (x < 0).all():
    raise ValueError('its numbers must be below 0')
  return np.log(-x.astype(np.float64))


AS_THEY_ARE = Numbers(np.asarray, np.asarray)
NEGATIVE_EXP = Numbers(
  lambda x: -np.exp(x.astype(np.float64)), _log_of_negative
)
PLUS_ONE = Numbers(lambda x: x + np.float32(1), lambda x: x - np.float32(1))


def multiplied(factor: Any) -> Numbers:
  """Returns what multiplies numbers in a file, and takes them as they are.

  Args:
    factor: a number, or one for each row.
  """
  if np.all(factor == 1):
    return AS_THEY_ARE
  return Numbers(lambda x: x * factor, np.asarray)


class Held(NamedTuple):
  """A tensor of a file: views of our arrays, and what is done to them.

  A constant has no views: it is written, and isn't read.
  """

  stored: table.Stored
  numbers: Numbers = AS_THEY_ARE
  constant: np.ndarray | None = None

  @property
  def shape(self) -> tuple[int, ...]:
    return blocks.squeezed(self.stored.shape)

  def take(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns its float32 numbers from our arrays by name."""
    if self.constant is not None:
      return self.constant
    own = self.stored.take(arrays)
    return self.numbers.write(own).astype(np.float32, copy=False)

  def place(self, arrays: Mapping[str, np.ndarray], x: np.ndarray) -> None:
    """Copies its numbers into our arrays by name.

    Raises:
      ValueError: they can't be those of such a tensor.
    """
    if self.constant is None:
      self.stored.place(arrays, self.numbers.read(x))


def of_model(
  architecture: types.ModuleType, config: config_lib.Config, vocabulary: int
) -> dict[str, Held]:
  """Returns the tensors of a model by name.

  Args:
    architecture: a module of `architectures`.
    config: of the model.
    vocabulary: its size.
  """
  norm = getattr(architecture, 'NORM', NAMES.norm)
  names = NAMES._replace(norm=norm)
  rows = table.stack(config, vocabulary, names, architecture.layer)
  renamed = (
    dataclasses.replace(row, name=HEAD) if row.name == 'lm_head.weight' else row
    for row in rows
  )
  numbers = architecture.NUMBERS
  if own := getattr(architecture, 'numbers', None):
    numbers = {**numbers, **own(config)}
  held = {
    name: Held(stored, numbers.get(within(name), AS_THEY_ARE))
    for name, stored in table.stored(renamed).items()
  }
  for name, x in architecture.constants(config).items():
    held[name] = Held(table.Stored(x.shape, []), constant=x)
  return held


def within(name: str) -> str:
  """Returns the name of a tensor in its layer."""
  return BLOCK.sub('', name)


def named(
  rows: Iterable[table.Row],
  names: Mapping[str, str],
  shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> list[table.Row]:
  """Returns a layer's rows under llama.cpp's names; without one, none.

  Args:
    rows: of formats/hf.
    names: {theirs: llama.cpp's}, of a row, or of one with a weight and a bias.
    shapes: by llama.cpp's name, of those that have another one.
  """
  shapes = shapes or {}
  made: list[table.Row] = []
  for row in rows:
    stem, _, suffix = row.name.rpartition('.')
    name = names.get(row.name, '')
    if not name and stem in names:
      name = f'{names[stem]}.{suffix}'
    if name and isinstance(row, table.Tensor):
      shape = shapes.get(name, row.shape)
      made.append(dataclasses.replace(row, name=name, shape=shape))
  return made


def changed(
  rows: Iterable[table.Row],
  names: Iterable[str],
  view: Callable[[np.ndarray], Any],
) -> list[table.Row]:
  """Returns rows, of which those of these names are seen through a view."""
  names = {*names}

  def change(row):
    stem = row.name.rpartition('.')[0]
    if stem not in names or not isinstance(row, table.Tensor):
      return row
    own = row.view
    return dataclasses.replace(row, view=lambda x: view(own(x)))

  return [change(row) for row in rows]


def experts(model: config_lib.Model) -> list[table.Row]:
  """Returns the matrices of all experts of a layer, one tensor each."""
  E, D, F = model.experts.count, model.width, model.mlp_width
  shapes = {'gate': (E, F, D), 'up': (E, F, D), 'down': (E, D, F)}
  return [
    table.Tensor(
      f'ffn_{part}_exps.weight',
      shape,
      f'experts.{part}.kernel',
      lambda x: x.swapaxes(1, 2),
    )
    for part, shape in shapes.items()
  ]
