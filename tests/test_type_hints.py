"""Public functions say what they take and what they return."""

import ast
import pathlib

PACKAGE = pathlib.Path(__file__).parents[1] / 'rnn_jax'
ROOMS = (
  'ops',
  'native',
  'cells',
  'layers',
  'models',
  'data',
  'parallel',
  'runs',
  'serving',
  'training',
  'tasks',
  'config',
  'system',
)
FILES = sorted(
  {
    *PACKAGE.glob('*.py'),
    *(file for room in ROOMS for file in (PACKAGE / room).rglob('*.py')),
  }
)


def test_public_functions_have_complete_type_hints():
  incomplete = {
    (str(file.relative_to(PACKAGE)), name): missing
    for file in FILES
    for name, function in public_functions(ast.parse(file.read_text()))
    if (missing := missing_hints(function))
  }
  assert FILES and not incomplete


def test_missing_hints_are_found():
  source = """
def complete(x: int, *rest: int, key: int = 0, **others: int) -> int: ...
def no_result(x: int): ...
def no_arguments(x, *rest, key, **others) -> int: ...
def _private(x): ...
class Public:
  field = 0
  def method(self, x): ...
  @staticmethod
  def static(x) -> int: ...
  def __call__(self, x) -> int: ...
  def _hidden(self, x): ...
class _Private:
  def method(self, x): ...
"""
  missing = {
    name: missing_hints(function)
    for name, function in public_functions(ast.parse(source))
  }
  assert missing == {
    'complete': [],
    'no_result': ['return'],
    'no_arguments': ['x', 'key', 'rest', 'others'],
    'Public.method': ['x', 'return'],
    'Public.static': ['x'],
    'Public.__call__': ['x'],
  }


def public_functions(tree, prefix=''):
  """Yields (name, node) of the functions and methods of a module or class."""
  for node in tree.body:
    if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
      yield from public_functions(node, f'{node.name}.')
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      if is_public(node.name):
        yield prefix + node.name, node


def is_public(name):
  return not name.startswith('_') or name in ('__call__', '__init__')


def missing_hints(function):
  """Returns the names of arguments without a hint, and 'return'."""
  given = function.args
  named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
  if named and named[0].arg in ('self', 'cls'):
    named = named[1:]
  arguments = [*named, *filter(None, (given.vararg, given.kwarg))]
  missing = [x.arg for x in arguments if x.annotation is None]
  return missing if function.returns else [*missing, 'return']
