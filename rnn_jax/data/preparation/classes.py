"""Which class a label of a file means."""

import functools


def number(label, classes: tuple[str, ...]) -> int | None:
  """Returns the number of a class from its label; None of what is no class.

  A label is a class's name. It may be the number too, from 0, unless names are
  numbers themselves: of the classes ('1', '2', '3') a label 0 is none.
  """
  if type(label) not in (str, int, bool):
    return None
  return _numbers(classes).get(str(label))


@functools.lru_cache(maxsize=4)
def _numbers(classes):
  """{label: number}; True and False are names alone."""
  names = {name: n for n, name in enumerate(classes)}
  if any(map(str.isdecimal, classes)):
    return names
  return {str(n): n for n in range(len(classes))} | names
