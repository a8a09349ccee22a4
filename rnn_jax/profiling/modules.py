"""The module that each operation of a compiled program belongs to.

XLA keeps, as `op_name`, the path that led to an operation while tracing:

  jit(train)/transpose(jvp(LanguageModel.features))/stack/while/body/.../mul

Without transformations, loops and the primitive at its end, that is the path of
the module: stack, in the backward pass. If no module was entered, the source
file takes its place.

The text of a program begins with four tables: files, functions, locations (a
file and a line), and frames of calls: each has a location and, counted from 1,
the number of the frame that called it plus 1.
"""

import re

PACKAGE = '/rnn_jax/'
LIBRARY = 'optax'
HELPERS = {'ops/precision'}  # matmuls of other modules
WRAPPERS = {
  'body',
  'branch',
  'checkpoint',
  'closed_call',
  'cond',
  'core_call',
  'custom_jvp_call',
  'custom_vjp_call',
  'rematted_computation',
  'remat',
  'shard_map',
  'while',
}
NOBODY = '(no module)'


def of(path: str, file: str = '') -> str:
  """Returns the module of an `op_name`, with '(backward)' or '(again)'.

  Args:
    path: the `op_name`.
    file: takes the place of a module if the path has none.
  """
  names = []
  for part in _split(path)[:-1]:
    if name := _unwrap(part):
      _enter(names, name)
  name = '/'.join(names) or file
  if not name:
    return NOBODY
  if 'rematted_computation' in path:
    return name + ' (again)'
  return name + ' (backward)' * ('transpose(' in path)


def _enter(names, name):
  """Adds a part of a path; 'cell.recur' takes the place of 'cell'.

  Methods that a method calls, those of the whole model, and the formulas of
  einsum, 'ij,jk->ik', are skipped.
  """
  instance, _, method = name.rpartition('.')
  last = names[-1].partition('.')[0] if names else None
  if not method or '->' in name:
    return
  if not instance:
    names.append(name)
  elif instance == last and '.' not in names[-1]:
    names[-1] = name


def _split(path):
  """Cuts at '/' outside of parentheses."""
  parts, depth, begin = [], 0, 0
  for at, letter in enumerate(path):
    depth += (letter == '(') - (letter == ')')
    if letter == '/' and depth == 0:
      parts.append(path[begin:at])
      begin = at + 1
  return [*parts, path[begin:]]


def _unwrap(part):
  """Returns the name inside transformations; '' if it isn't a module."""
  while match := re.fullmatch(r'(\w+)\((.*)\)', part):
    if match[1] in ('jit', 'pjit', 'checkpoint', 'remat'):
      return ''
    part = match[2]
  return '' if part in WRAPPERS or part.startswith('branch_') else part


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

  def file(self, frame: str) -> str:
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
