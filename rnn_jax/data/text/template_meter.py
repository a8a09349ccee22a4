"""What a chat template's rendering may use: the sum of all that it makes.

A template is a stranger's program. Each of its values is charged in bytes when
it is made and again when work depends on its size; a step has a price in the
same unit. One sum bounds time and memory therefore, no value may be large, and
no clock is read: what one machine renders, all render.
"""

import contextlib
import contextvars
import re
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from jinja2 import exceptions
from jinja2 import utils

STEP = 1024  # bytes, the price of a filter
CALL = 4096  # of a call
NODE = 256  # of a part of an expression, each time that a loop computes it
ENTRY = 64  # of an entry of a list
TOTAL, PER_BYTE = 2**29, 256  # bytes of a rendering, and more per byte of input
VALUE, LARGER = 2**23, 16  # the same of a value
WIDEST = 10_000  # characters that a number may ask for, such as of a field
BITS = 4096  # of an integer
NUMBER = re.compile(r'\d+')
PLAIN = {bool, int, float, type(None)}
_SOME: dict[str, str] = {}
VIEWS = type(_SOME.keys()), type(_SOME.values()), type(_SOME.items())
LISTS = (list, tuple, set, frozenset, *VIEWS)
SIZED = (dict, range, *LISTS)


class Exceeded(exceptions.TemplateRuntimeError):
  """A template needs more than it may; the message says of what."""


class Meter:
  """What a rendering has used and may use, both in bytes."""

  def __init__(self, given: Any = ()) -> None:
    self.used, self.total, self.value = 0, sys.maxsize, sys.maxsize
    size = self.deep(given)
    self.used = 0
    self.total, self.value = TOTAL + PER_BYTE * size, VALUE + LARGER * size

  def spend(self, count: int) -> None:
    """Charges some bytes.

    Raises:
      Exceeded: the rendering has used what it may.
    """
    self.used += count
    if self.used > self.total:
      raise Exceeded(
        f'it takes more than {self.total // STEP:,} steps, which is what its '
        'messages may take'
      )

  def made(self, value: Any) -> Any:
    """Charges a new value, without what it refers to. Returns the value."""
    size = _shallow(value)
    if size > ENTRY:
      self.expect(size)
      if isinstance(value, int):
        self.bits(value.bit_length())
    return value

  def expect(self, size: float) -> None:
    """Charges a value before it is made, of `size` bytes."""
    self.used += int(size)
    if size > self.value:
      raise Exceeded(
        f'it makes a value of {size / 2**20:,.0f} MiB, and may make '
        f'{self.value / 2**20:,.0f}'
      )
    if self.used > self.total:
      self.spend(0)

  def bits(self, count: float) -> None:
    """Checks the size of an integer before it is made."""
    if count > BITS:
      raise Exceeded(
        f'it makes an integer of {count:,.0f} bits, and may make {BITS:,}'
      )

  def width(self, *values: Any) -> None:
    """Checks numbers that say how long a text or a list becomes."""
    for value in values:
      if isinstance(value, int) and abs(value) > WIDEST:
        shown = f'{value:,}' if value.bit_length() < BITS else 'an integer'
        raise Exceeded(
          f'it asks for a width of {shown}, and may ask for {WIDEST:,}'
        )

  def spec(self, text: str | bytes) -> None:
    """Checks the widths in a format."""
    text = text.decode('latin-1') if isinstance(text, bytes) else text
    for digits in NUMBER.findall(text):
      self.width(int(digits[:9]) if len(digits) < 9 else 10**9)

  def deep(self, value: Any) -> int:
    """Charges all that a value holds, as often as it holds it.

    A list that holds another twice costs it twice: to write, compare or hash
    it takes as long. Returns the bytes.
    """
    if type(value) is str:
      self.expect(len(value))
      return len(value)
    size, rest = 0, [value]
    while rest:
      one = rest.pop()
      size += _shallow(one)
      if size > self.value:
        self.expect(size)
      kind = type(one)
      if kind is str or kind in PLAIN:
        continue
      if isinstance(one, dict):
        rest += one
        rest += one.values()
      elif isinstance(one, LISTS):
        rest += one
      elif kind is utils.Namespace:
        rest.append(object.__getattribute__(one, '_Namespace__attrs'))
    self.spend(size)
    return size

  def items(self, values: Iterable, price: int = STEP) -> Iterator:
    """Yields the items of an iterator, each charged."""
    for value in values:
      self.spend(price)
      yield self.made(value)


_CURRENT: contextvars.ContextVar[Meter] = contextvars.ContextVar('meter')
current = _CURRENT.get


@contextlib.contextmanager
def measured(given: Any = ()) -> Iterator[Meter]:
  """Within it, `current` is a new meter, for an input."""
  token = _CURRENT.set(Meter(given))
  try:
    yield _CURRENT.get()
  finally:
    _CURRENT.reset(token)


def _shallow(value):
  kind = type(value)
  if kind is str or isinstance(value, (bytes, int, str)):
    return sys.getsizeof(value)
  if isinstance(value, SIZED):
    return ENTRY * (1 + len(value))
  return ENTRY
