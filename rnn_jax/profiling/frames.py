"""Finds the source files of a compiled program's operations.

The text of a program begins with four tables: files, functions, locations (a
file and a line), and frames of calls: each has a location and, counted from 1,
the number of the frame that called it plus 1.
"""

import re

PACKAGE = '/rnn_jax/'
LIBRARY = 'optax'
HELPERS = {'ops/precision'}  # matmuls of other modules


class Frames:
  """The tables of a program's text; empty if it has none."""

  def __init__(self, text: str):
    files = dict(_rows(text, 'FileNames', r'"(.*)"'))
    locations = {
      number: files.get(file)
      for number, file in _rows(text, 'FileLocations', r'\{file_name_id=(\d+)')
    }
    self._files, self._callers = {}, {}
    pattern = r'\{file_location_id=(\d+) parent_frame_id=(\d+)'
    for number, location, above in _rows(text, 'StackFrames', pattern):
      self._files[number] = locations.get(location) or ''
      self._callers[number] = str(int(above) - 1)

  def module(self, frame: str) -> str:
    """Returns the innermost file of this package, as in 'ops/gla', or ''.

    For a frame inside optax it is 'optax'.
    """
    while frame in self._files:
      file = self._files[frame]
      if f'/{LIBRARY}/' in file:
        return LIBRARY
      _, package, inside = file.rpartition(PACKAGE)
      name = inside.removesuffix('.py')
      if package and name not in HELPERS:
        return name
      frame = self._callers[frame]
    return ''


def _rows(text, table, pattern):
  """Yields (number, groups of the pattern...) of the rows of a table."""
  rows = re.search(rf'^{table}\n((?:.+\n)*)', text, re.MULTILINE)
  lines = rows[1].splitlines() if rows else ()
  for line in lines:
    if match := re.match(rf'(\d+) {pattern}', line):
      yield match.groups()
