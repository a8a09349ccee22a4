"""The public names of rnn_jax, and the list of them that is kept.

    python -m tests.support.public_names

writes the list again. Public is what a user may import from the package itself
or from a module of ROOMS: a function, class or constant without an underscore
in its name or its module's, and what a module imports as itself (`from a import
b as b`). Where a package of a room has public names itself, as
`rnn_jax.ops.gla`, its modules are how it is made, and not public; nor are those
of INNER.
"""

import ast
import pathlib
from collections.abc import Iterator

from tests.support import tiny

LIST = tiny.ROOT / 'tests' / 'public_names.txt'
PACKAGE = 'rnn_jax'
ROOMS = (
  'layers',
  'ops',
  'cells',
  'models',
  'tasks',
  'training',
  'inference',
  'serving',
)
INNER = (
  'rnn_jax.layers',  # has all names of its modules
  'rnn_jax.serving.http',  # its interface is HTTP
)


def text() -> str:
  """Returns what LIST has to hold: each module, and below it its names."""
  lines = []
  for module, names in sorted(modules().items()):
    lines += [module, *(f'  {name}' for name in sorted(names))]
  return '\n'.join(lines) + '\n'


def modules() -> dict[str, set[str]]:
  """Returns {public module: its public names}; those without any are absent."""
  found = {}
  for path in files():
    parts = path.relative_to(tiny.ROOT).with_suffix('').parts
    if parts[-1] == '__init__':
      parts = parts[:-1]
    names = {x for x in defined(path.read_text()) if not x.startswith('_')}
    if names and not any(part.startswith('_') for part in parts):
      found['.'.join(parts)] = names
  inner = [*INNER, *(module for module in found if module.count('.') > 1)]
  return {
    module: names
    for module, names in found.items()
    if not any(module.startswith(f'{package}.') for package in inner)
  }


def files() -> Iterator[pathlib.Path]:
  """Yields the package's own file and the files of ROOMS."""
  root = tiny.ROOT / PACKAGE
  yield root / '__init__.py'
  for room in ROOMS:
    yield from (root / room).rglob('*.py')


def defined(source: str) -> Iterator[str]:
  """Yields the names that a module defines, or imports as themselves."""
  for node in ast.parse(source).body:
    yield from _defined(node)


def _defined(node):
  match node:
    case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
      yield node.name
    case ast.Assign() | ast.AnnAssign():
      targets = node.targets if isinstance(node, ast.Assign) else [node.target]
      for target in targets:
        yield from (x.id for x in ast.walk(target) if isinstance(x, ast.Name))
    case ast.ImportFrom():
      yield from (x.name for x in node.names if x.asname == x.name)
    case ast.If() | ast.Try():
      for child in (*node.body, *node.orelse):
        yield from _defined(child)


if __name__ == '__main__':
  LIST.write_text(text())
