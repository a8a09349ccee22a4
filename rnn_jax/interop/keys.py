"""The keys of an untrusted file: type and range are checked on reading.

    keys.whole('num_hidden_layers', most=LAYERS)      a size: 1 or more
    keys.section('linear_attn_config').whole('head_dim')

What is wrong is refused by file, key and value. null is the same as a key that
is missing. A size has a bound before anything is made of it, far above those of
any model.
"""

import dataclasses
import json
import pathlib
import reprlib
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NoReturn

from rnn_jax import errors
from rnn_jax.system import files

MAX_SIZE = 2**24  # of a width, a vocabulary, a length
LAYERS = 4096
TAPS = 256  # of a convolution
EXPERTS = 2**14  # of a layer
MATRICES = 2**18  # experts of all layers
LARGEST = 1e12  # of a number
LINE = 200  # characters of a value in a message
_SHOWN = reprlib.Repr()
_SHOWN.maxlist = _SHOWN.maxdict = _SHOWN.maxtuple = 8
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80


@dataclasses.dataclass(frozen=True)
class Keys:
  """The keys of an object in a file."""

  path: pathlib.Path | str
  values: dict[str, Any]

  def whole(
    self,
    name: str,
    default: int | None = None,
    least: int = 1,
    most: int = MAX_SIZE,
  ) -> int:
    """Returns a whole number from `least` to `most`."""
    value = self._typed(name, default, (int,), 'a whole number')
    self._check_range(name, value, least, most)
    return value

  def number(
    self,
    name: str,
    default: float | None = None,
    least: float = 0.0,
    most: float = LARGEST,
  ) -> float:
    """Returns a finite number from `least` to `most`."""
    value = self._typed(name, default, (int, float), 'a number')
    self._check_range(name, value, least, most)
    return float(value)

  def flag(self, name: str, default: bool) -> bool:
    """Returns a flag."""
    return self._typed(name, default, (bool,), 'true or false')

  def text(self, name: str, default: str | None = None) -> str:
    """Returns a text."""
    return self._typed(name, default, (str,), 'a text')

  def one_of(self, name: str, allowed: Iterable[Any], default: Any) -> Any:
    """Returns a value that must be among the `allowed`, of the same type."""
    value = self.get(name, default)
    if not any(_is_same(value, one) for one in allowed):
      self.refuse(name, value, f'only {[*allowed]} are supported')
    return value

  def absent(self, name: str) -> None:
    """Refuses a key that has a value."""
    if (value := self.get(name)) not in (None, {}, []):
      self.refuse(name, value, 'only null is supported')

  def section(self, name: str) -> 'Keys':
    """Returns the keys of an object in it; none, if it is missing."""
    value = self._typed(name, {}, (dict,), 'an object')
    return dataclasses.replace(self, values=value)

  def items(self, name: str, most: int = MAX_SIZE) -> list[Any] | None:
    """Returns a list of at most so many items; None, if it is missing."""
    value = self.values.get(name)
    if value is not None and not isinstance(value, list):
      self.refuse(name, value, 'give a list')
    if value and len(value) > most:
      self.refuse(name, value, f'{len(value):,} items, and {most:,} are enough')
    return value

  def names(self, name: str, known: Sequence[str]) -> list[str] | None:
    """Returns a list of names for layers, of those that are known."""
    kinds = self.items(name, LAYERS)
    for kind in kinds or ():
      if kind not in known:
        self.refuse(name, kind, f'only {[*known]} are supported')
    return kinds

  def _typed(self, name, default, types, what):
    value = self.get(name, default)
    if type(value) not in types:
      self.refuse(name, value, f'give {what}')
    return value

  def _check_range(self, name, value, least, most):
    if value > most:
      self.refuse(name, value, f'give {most:,} or less')
    if not value >= least:  # NaN is refused as well
      self.refuse(name, value, f'give {least} or more')

  def get(self, name: str, default: Any = None) -> Any:
    """Returns a value of any type."""
    value = self.values.get(name)
    return default if value is None else value

  def refuse(self, name: str, value: Any, remedy: str) -> NoReturn:
    """Raises InputError about a key."""
    raise errors.InputError(f'{self.path}: {name}={shown(value)}: {remedy}')


def shown(value: Any) -> str:
  """Returns a value for a message, in which a long one is cut."""
  text = _SHOWN.repr(value)
  return text if len(text) <= LINE else f'{text[:LINE]}...'


def read(
  path: pathlib.Path,
  limit: int = files.SMALL,
  within: pathlib.Path | None = None,
) -> Keys:
  """Returns the keys of a file of JSON.

  Args:
    path: of it.
    limit: its bytes at most.
    within: as in files.regular.

  Raises:
    InputError: it can't be read, or isn't JSON of an object.
  """
  with files.reading(path, 'get it again'):
    # Other programs write Infinity.
    value = files.read_json(path, limit, finite=False, within=within)
    if not isinstance(value, dict):
      raise ValueError('not a JSON object')
  return Keys(path, value)


def write(path: pathlib.Path, values: dict[str, Any]) -> None:
  """Writes a file of JSON."""
  text = json.dumps(values, ensure_ascii=False, indent=2)
  path.write_text(text + '\n', encoding='utf-8')


def _is_same(value, one):
  """Whether values are equal, and both or neither are flags."""
  alike = isinstance(value, bool) == isinstance(one, bool)
  return alike and type(value) in (type(one), int, float) and value == one
