"""Data sets that aren't part of the repository, by name.

  BENCHMARK_DATA=reviews=reviews.jsonl:text,dialogs=dialogs.jsonl:turns

names JSONL files and the column of the text; NAME=PATH.txt is a text without
rows. Rows of measurements hold only the names: the path of a file is no
property of what was measured. Without the variable the data set is the
docstrings of the running Python's standard library.
"""

import ast
import itertools
import json
import os
import pathlib
import sysconfig

from rnn_jax import errors

VARIABLE = 'BENCHMARK_DATA'
DOCSTRINGS = 'docstrings'
KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef)


def names() -> list[str]:
  """The names of all data sets.

  Raises:
    InputError: the variable is not as above, or a file is missing.
  """
  return [*_given()] or [DOCSTRINGS]


def overrides(
  name: str, folder: str | os.PathLike, limit: int = 0
) -> dict[str, str]:
  """Keys of section `data` that read a data set; files are made in `folder`.

  A `limit` above 0 is the largest number of docstrings.

  Raises:
    InputError: as `names`, or there is no data set of that name.
  """
  if name == DOCSTRINGS:
    path, field = pathlib.Path(folder) / 'docstrings.jsonl', 'text'
    texts = itertools.islice(_docstrings(), limit or None)
    rows = (json.dumps({field: text}) + '\n' for text in texts)
    path.write_text(''.join(rows))
  elif name in (given := _given()):
    path, field = given[name]
  else:
    raise errors.InputError(f'{VARIABLE} has no {name!r}: it has {[*given]}')
  if not field:
    return {'source': 'text', 'path': str(path)}
  return {'source': 'jsonl', 'path': str(path), 'field': field}


def _given():
  """{name: (path, column)} of the variable; a text has the column ''."""
  files = {}
  for entry in filter(None, os.environ.get(VARIABLE, '').split(',')):
    name, _, rest = entry.partition('=')
    path, _, field = rest.rpartition(':')
    if rest.endswith('.txt'):
      path, field = rest, ''
    elif not (name and path and field):
      raise errors.InputError(
        f'{VARIABLE}: {entry!r}: give NAME=PATH.jsonl:COLUMN, or NAME=PATH.txt'
      )
    if not pathlib.Path(path).is_file():
      raise errors.InputError(f'{VARIABLE}: {entry!r}: no such file')
    files[name] = path, field
  return files


def _docstrings():
  root = pathlib.Path(sysconfig.get_path('stdlib'))
  for path in sorted(root.glob('*.py')):
    for node in ast.walk(ast.parse(path.read_bytes())):
      if isinstance(node, KINDS) and (text := ast.get_docstring(node)):
        yield text
