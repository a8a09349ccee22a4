"""What the operators, methods and filters of Jinja may make, by their operands.

Each function here charges a meter before the work is done, where the result can
be much larger than what it is made from. `jinja2.filters` and `str` say what
each of them does.
"""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from rnn_jax.data.text import template_meter

Meter = template_meter.Meter
TEXT = str, bytes
NAMED = 1000  # characters of an attribute's name or path
SLOW = 16  # a text of n bytes costs n^2 / SLOW where time is quadratic


def add(meter: Meter, left: Any, right: Any) -> None:
  """Charges left + right."""
  if isinstance(left, TEXT) and isinstance(right, TEXT):
    escaped = 1 if type(left) is type(right) else 6  # of HTML
    meter.expect(escaped * (len(left) + len(right)))
  elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
    meter.expect(template_meter.ENTRY * (len(left) + len(right)))


def multiply(meter: Meter, left: Any, right: Any) -> None:
  """Charges left * right."""
  if isinstance(left, int) and isinstance(right, int):
    meter.bits(left.bit_length() + right.bit_length())
    return
  if isinstance(left, int):
    left, right = right, left
  if isinstance(right, int) and isinstance(left, (*TEXT, list, tuple)):
    unit = 4 if isinstance(left, TEXT) else template_meter.ENTRY
    meter.expect(unit * len(left) * max(right, 0))


def power(meter: Meter, left: Any, right: Any) -> None:
  """Charges left ** right."""
  if isinstance(left, int) and isinstance(right, int) and abs(left) > 1:
    meter.bits(left.bit_length() * max(right, 0))


def percent(meter: Meter, left: Any, right: Any) -> None:
  """Charges left % right."""
  if not isinstance(left, TEXT):
    return
  size = meter.deep(right)
  meter.spec(left)
  text = left if isinstance(left, str) else left.decode('latin-1')
  if '*' in text:
    meter.width(*(right if isinstance(right, tuple) else (right,)))
  count = text.count('%')
  meter.expect(len(left) + 6 * size * count)


OPERATORS = {'+': add, '*': multiply, '**': power, '%': percent}


def method(
  meter: Meter, owner: Any, name: str, args: list, kwargs: dict
) -> None:
  """Charges a call of a method.

  An iterator in `args` is replaced by its items, each of them charged.
  """
  for n, value in enumerate(args):
    if isinstance(value, Iterator):
      args[n] = [*meter.items(value)]
  size = meter.deep((args, kwargs)) if args or kwargs else 0
  if isinstance(owner, TEXT) or name in ('count', 'index'):
    meter.deep(owner)
  if isinstance(owner, int) and name == 'to_bytes':
    meter.width(*args, *kwargs.values())
  if not isinstance(owner, TEXT):
    return
  if name in WIDE:
    meter.width(*args, *kwargs.values())
  if name == 'expandtabs':
    meter.expect(len(owner) * max([8, *args, *kwargs.values()]))
  elif name == 'replace':
    _replace(meter, owner, *args[:2])
  elif name == 'join':
    meter.expect(size + len(owner) * (len(args[0]) if args else 0))
  elif name == 'translate' and args and isinstance(args[0], dict):
    longest = max((len(x) for x in args[0].values() if _sized(x)), default=1)
    meter.expect(4 * len(owner) * longest)
  elif name in SPLITS:
    meter.expect(template_meter.ENTRY * _pieces(owner, *args[:1]))
  elif name == 'striptags' or (name in CODED and size > CODED[name]):
    meter.spend(len(owner) ** 2 // SLOW)


WIDE = {'center', 'ljust', 'rjust', 'zfill', 'expandtabs'}
SPACES = [chr(n) for n in range(0x3001) if chr(n).isspace()]
ASCII_SPACES = [bytes([n]) for n in range(33)]
SPLITS = {'split', 'rsplit', 'splitlines'}
# Some codecs take quadratic time: no more than one name, such as 'utf-8'.
CODED = {'encode': 350, 'decode': 350}


def _pieces(text, separator=None):
  if isinstance(separator, type(text)) and separator:
    return 1 + text.count(separator)
  spaces = SPACES if isinstance(text, str) else ASCII_SPACES
  return 1 + sum(text.count(space) for space in spaces)


def _sized(value):
  return isinstance(value, TEXT)


def _replace(meter, text, old='', new='', *_, **__):
  text = text if isinstance(text, TEXT) else str(text)
  if isinstance(old, type(text)) and isinstance(new, TEXT):
    count = text.count(old) if old else len(text) + 1
    meter.expect(6 * (len(text) + count * len(new)))


def filtered(
  meter: Meter, name: str, value: Any, args: tuple, kwargs: dict
) -> None:
  """Charges a filter, before it is called."""
  meter.spend(template_meter.STEP)
  given = [*args, *kwargs.values()]
  if name not in SHALLOW:
    meter.deep(value)
  if given and name not in SHALLOW:
    meter.deep(given)
  if name in COUNTED:
    meter.width(*given)
  if name in BY_NAME and any(_sized(x) and len(x) > NAMED for x in given):
    raise template_meter.Exceeded(
      f'it gives the filter {name!r} a name of more than {NAMED:,} characters'
    )
  if charge := FILTERS.get(name):
    charge(meter, value, *args, **kwargs)


def _indent(meter, text, width=4, *_, **__):
  if isinstance(text, str):
    size = width if isinstance(width, int) else len(width)
    meter.expect(4 * (len(text) + size * (1 + len(text.splitlines()))))


def _wordwrap(meter, text, *args, wrapstring=None, **_):
  wrapstring = args[2] if len(args) > 2 else wrapstring
  if isinstance(text, str) and isinstance(wrapstring, str):
    meter.expect(4 * len(text) * (1 + len(wrapstring)))


def _join(meter, values, d='', attribute=None):
  del attribute
  if hasattr(values, '__len__'):
    size = len(d) if _sized(d) else template_meter.ENTRY
    meter.expect(6 * size * len(values))


def _format(meter, text, *args, **kwargs):
  percent(meter, text if isinstance(text, TEXT) else str(text), kwargs or args)


def _sum(meter, values, attribute=None, start=0):
  """A sum of lists copies all the former ones for each."""
  if not isinstance(start, (int, float)) and hasattr(values, '__len__'):
    meter.spend(len(values) * meter.deep(values))


def _slow(meter, value, *_, **__):
  size = len(value) if isinstance(value, TEXT) else meter.deep(value)
  meter.spend(size**2 // SLOW)


FILTERS: dict[str, Callable[..., None]] = {
  'format': _format,
  'indent': _indent,
  'join': _join,
  'pprint': _slow,
  'replace': _replace,
  'striptags': _slow,
  'sum': _sum,
  'urlize': _slow,
  'wordwrap': _wordwrap,
}
SHALLOW = {  # filters that don't look into what they get
  *('attr', 'batch', 'count', 'd', 'default', 'first', 'items', 'last'),
  *('length', 'list', 'map', 'reject', 'rejectattr', 'reverse', 'safe'),
  *('select', 'selectattr', 'slice'),
}
COUNTED = {'batch', 'center', 'indent', 'round', 'slice', 'tojson'}
BY_NAME = {  # filters that take an attribute's name
  *('groupby', 'map', 'max', 'min', 'rejectattr', 'selectattr', 'sort'),
  *('sum', 'unique'),
}
TESTS = {  # tests that look into what they get
  *('!=', '<', '<=', '==', '>', '>=', 'eq', 'equalto', 'ge', 'greaterthan'),
  *('gt', 'in', 'le', 'lessthan', 'lower', 'lt', 'ne', 'upper'),
}
