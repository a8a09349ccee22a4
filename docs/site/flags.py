"""Every command and its flags, from the files of launch/."""

import ast
import inspect
import pathlib
from collections.abc import Iterator

from rnn_jax import command_line

LAUNCH = pathlib.Path(__file__).parents[2] / 'launch'


def pages() -> Iterator[tuple[str, str]]:
  """Yields the page of all commands."""
  lines = ['# Commands and flags', '']
  lines += ['`rnn-jax COMMAND --help` prints the same.', '']
  for command in command_line.commands():
    lines += _command(command.name)
  lines += ['## Flags of several commands', '']
  for name in ('command', 'hosts'):
    lines += _table(ast.parse((LAUNCH / f'{name}.py').read_text()))
  yield 'flags', '\n'.join(lines) + '\n'


def _command(name):
  tree = ast.parse((LAUNCH / f'{name}.py').read_text())
  doc = command_line.as_typed(inspect.cleandoc(ast.get_docstring(tree) or ''))
  return [f'## {name}', '', doc, '', *_table(tree)]


def _table(tree):
  rows = [row for node in ast.walk(tree) if (row := _flag(node))]
  if not rows:
    return []
  return ['| flag | default | meaning |', '|---|---|---|', *rows, '']


def _flag(node):
  """A row of the table, if the node defines a flag."""
  if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
    return None
  if not node.func.attr.startswith('DEFINE_'):
    return None
  values = [_value(x) for x in node.args]
  texts = [value for value in values if isinstance(value, str)]
  if len(values) < 3 or not texts:
    return None
  name, default, *_ = values
  unset = default in (None, '', [], False)
  shown = '' if unset else f'`{default}`'
  about = ' '.join(texts[-1].split()).replace('|', '\\|').replace('<', '\\<')
  return f'| `--{name}` | {shown} | {about} |'


def _value(node):
  try:
    return ast.literal_eval(node)
  except ValueError:
    return ast.unparse(node)
