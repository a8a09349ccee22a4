"""Imports between the folders of rnn_jax point one way."""

import ast
import graphlib
import pathlib
import subprocess
import sys

import rnn_jax

ROOT = pathlib.Path(rnn_jax.__file__).parent


def imported(path):
  """The folders and files of rnn_jax that a file takes something from."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.ImportFrom) and node.module.startswith('rnn_jax'):
      for name in node.names:
        yield f'{node.module}.{name.name}'.split('.')[1]


def test_no_two_folders_import_each_other():
  graph = {}
  for path in ROOT.rglob('*.py'):
    room = path.relative_to(ROOT).parts[0].removesuffix('.py')
    graph.setdefault(room, set()).update(set(imported(path)) - {room})
  order = [*graphlib.TopologicalSorter(graph).static_order()]
  assert order.index('ops') < order.index('cells') < order.index('training')


def test_a_first_step_waits_for_no_plots():
  code = 'import sys, launch.train, rnn_jax.training.loop; print(*sys.modules)'
  result = subprocess.run(
    [sys.executable, '-c', code],
    cwd=ROOT.parent,
    capture_output=True,
    text=True,
    check=True,
  )
  loaded = set(result.stdout.split())
  assert 'jax' in loaded
  assert not loaded & {'matplotlib', 'tensorboardX', 'torch', 'tensorflow'}
