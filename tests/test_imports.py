"""Imports between the folders of rnn_jax point one way."""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys

import pytest

import rnn_jax

ROOT = pathlib.Path(rnn_jax.__file__).parent
# From the highest to the lowest.
ROOMS = (
  (
    'experiments',
    'inspection',
    'interop',
    'planning',
    'profiling',
    'selfcheck',
    'serving',
  ),
  ('evaluation', 'inference', 'training'),
  ('tasks',),
  ('runs',),
  ('data', 'layers', 'models'),
  ('cells', 'config'),
  ('parallel',),
  ('ops',),
  ('native',),
  ('system',),
)


def imported(path):
  """Yields the modules of rnn_jax, or names in them, that a file imports."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
      yield from (f'{node.module}.{name.name}' for name in node.names)


@functools.cache
def files():
  """Returns {file of rnn_jax: the others that it imports}, as modules."""
  names = {}
  for path in ROOT.rglob('*.py'):
    parts = path.relative_to(ROOT.parent).with_suffix('').parts
    names[path] = '.'.join(x for x in parts if x != '__init__')
  modules = {*names.values()}
  graph = {}
  for path, own in names.items():
    others = {
      name if name in modules else name.rpartition('.')[0]
      for name in imported(path)
    }
    graph[own] = others & modules - {own}
  return graph


def rooms():
  """Returns {folder or file of rnn_jax: the others that it imports}."""
  graph = {}
  for own, others in files().items():
    if own == ROOT.name:
      continue
    room = own.split('.')[1]
    above = {other.split('.')[1] for other in others - {ROOT.name}}
    graph.setdefault(room, set()).update(above - {room})
  return graph


def folders():
  """Returns {folder, or file of a room: the others that it imports}.

  A package's own file is by itself: to list what lies in a folder isn't to
  import it.
  """
  graph = {}
  for own, others in files().items():
    above = {unit(other) for other in others} - {unit(own)}
    graph.setdefault(unit(own), set()).update(above)
  return graph


def unit(module):
  """Returns the folder that a file lies in; of a room's own files, the file."""
  parts = module.split('.')
  if len(parts) < 4 or ROOT.parent.joinpath(*parts).is_dir():
    return module
  return f'{module.rpartition(".")[0]}/'


def test_no_two_files_import_each_other():
  graphlib.TopologicalSorter(files()).prepare()


def test_no_two_folders_of_a_room_import_each_other():
  graphlib.TopologicalSorter(folders()).prepare()


def test_no_two_folders_import_each_other():
  graphlib.TopologicalSorter(rooms()).prepare()


def test_folders_import_downwards():
  floors = {room: n for n, floor in enumerate(ROOMS) for room in floor}
  graph = rooms()
  assert {path.name for path in ROOT.iterdir() if path.is_dir()} - {
    '__pycache__'
  } == set(floors)
  upwards = {
    (room, other)
    for room in floors
    for other in graph[room] & set(floors)
    if floors[other] < floors[room]
  }
  assert not upwards


def loaded(code):
  """Returns the packages that a new process has loaded after some code."""
  code += "\nimport sys; print(*{x.partition('.')[0] for x in sys.modules})"
  result = subprocess.run(
    [sys.executable, '-c', code],
    cwd=ROOT.parent,
    capture_output=True,
    text=True,
    check=True,
  )
  return {*result.stdout.splitlines()[-1].split()}


def test_training_imports_no_plots():
  names = loaded('import launch.train, rnn_jax.training.loop')
  assert 'jax' in names
  assert not names & {'matplotlib', 'tensorboardX', 'torch', 'tensorflow'}


@pytest.mark.parametrize(
  'code',
  (
    'import rnn_jax',
    'from rnn_jax import command_line; command_line.main([])',
    'import launch.train',
  ),
)
def test_what_answers_at_once_imports_no_arrays(code):
  names = loaded(code)
  assert 'rnn_jax' in names
  assert not names & {'flax', 'grain', 'jax', 'numpy', 'orbax', 'pandas'}


def test_cells_layers_models_and_tasks_know_no_mesh():
  graph = rooms()
  for room in ('ops', 'cells', 'layers', 'models', 'tasks'):
    assert not graph[room] & {'parallel', 'training'}
