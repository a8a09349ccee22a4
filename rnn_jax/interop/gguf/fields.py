"""Metadata of an architecture that are keys of a config.json, both ways.

llama.block_count                        num_hidden_layers
llama.attention.layer_norm_rms_epsilon   rms_norm_eps
"""

import dataclasses
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple
from typing import NoReturn

import numpy as np

from rnn_jax.interop import keys as keys_lib


@dataclasses.dataclass(frozen=True)
class Fields(keys_lib.Keys):
  """The values of a file that begin with its architecture's name."""

  architecture: str = ''

  def get(self, name: str, default: Any = None) -> Any:
    """Returns a value of any type; a float32 has the digits it stands for."""
    value = self.values.get(f'{self.architecture}.{name}')
    if isinstance(value, float):
      return float(str(np.float32(value)))
    if isinstance(value, np.ndarray):
      return value[: keys_lib.TAPS].tolist()  # which no scalar is
    return default if value is None else value

  def refuse(self, name: str, value: Any, remedy: str) -> NoReturn:
    super().refuse(f'{self.architecture}.{name}', value, remedy)

  def each(self, name: str, count: int) -> list[int]:
    """Returns whole numbers of each layer; a single one is of all."""
    value = self.values.get(f'{self.architecture}.{name}')
    if isinstance(value, int):
      return [value] * count
    if not isinstance(value, np.ndarray | list) or len(value) != count:
      self.refuse(name, value, f'give a whole number for each of {count}')
    return [int(x) for x in value]


class Field(NamedTuple):
  """A value that is a key of config.json.

  It has the type of its default, and is a size where that is None or whole.
  """

  name: str  # after the architecture's
  theirs: str
  default: int | float | None = None  # None: it must be there

  def read(self, fields: Fields) -> int | float:
    """Returns the key's value."""
    if isinstance(self.default, float):
      return fields.number(self.name, self.default)
    return fields.whole(self.name, self.default, least=0)


def read(fields: Fields, listed: Iterable[Field]) -> dict[str, Any]:
  """Returns the keys of config.json."""
  return {field.theirs: field.read(fields) for field in listed}


def write(theirs: Mapping[str, Any], listed: Iterable[Field]) -> dict[str, Any]:
  """Returns the values by name, from keys of config.json."""
  return {
    field.name: float(theirs[field.theirs])
    if isinstance(field.default, float)
    else theirs[field.theirs]
    for field in listed
  }
