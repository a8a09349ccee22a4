"""The class that a label in a file refers to."""

import functools


def number(label: object, classes: tuple[str, ...]) -> int | None:
  """Returns the number of the class of a label, or None if it isn't one.

  A label is the name of a class, or its number from 0 unless names are numbers
  themselves: among the classes ('1', '2', '3') a label 0 is invalid.
  """
  if type(label) not in (str, int, bool):
    return None
  return _numbers(classes).get(str(label))


@functools.lru_cache(maxsize=4)
def _numbers(classes):
  """Returns {label: number}; True and False are only names."""
  names = {name: n for n, name in enumerate(classes)}
  if any(map(str.isdecimal, classes)):
    return names
  return {str(n): n for n in range(len(classes))} | names
