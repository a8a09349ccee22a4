"""Suites name workloads that exist, with parameters that these take."""

import ast
import functools
import json
import pathlib
import subprocess
import sys

import pytest

import benchmarks
from benchmarks.harness import case as case_lib
from rnn_jax import errors

ROOT = pathlib.Path(benchmarks.__path__[0])
UNTIMED = {
  'faults',
  'formats',
  'accuracy',
  'calibration',
  'compression',
  'corpus',
  'gpu',
  'large',
  'large_scaling',
  'memory',
  'meshes',
  'partitioner',
  'planning',
  'prediction',
  'same_training',
  'series_baselines',
  'targets',
  'text_baselines',
}
FILES = sorted(
  ['faults']
  + [
    path.stem for path in (ROOT / 'suites').glob('*.py') if path.stem[0] != '_'
  ]
)
IMPORTS = """
import sys
from benchmarks.harness import case, plots, runner, tables

for name in sys.argv[1:]:
  case.load(name)
print(*sys.modules)
"""


def test_an_unknown_suite_lists_those_that_exist():
  with pytest.raises(errors.InputError) as raised:
    case_lib.load('bogus')
  assert str(raised.value) == f"--suite='bogus': choose one of {FILES}"


def test_the_process_that_starts_workers_loads_nothing_large():
  result = subprocess.run(
    [sys.executable, '-c', IMPORTS, *FILES],
    cwd=ROOT.parent,
    capture_output=True,
    text=True,
    check=True,
  )
  loaded = set(result.stdout.split())
  assert 'benchmarks.suites.cells' in loaded
  large = {'jax', 'flax', 'grain', 'tensorflow', 'torch', 'transformers'}
  assert not loaded & {*large, 'fla', 'matplotlib', 'tensorflow_datasets'}


@pytest.mark.parametrize('quick', (False, True))
@pytest.mark.parametrize('name', FILES)
def test_cases_fit_their_workloads(name, quick):
  cases = case_lib.load(name).cases(quick)
  names = [case.name for case in cases]
  assert len(set(names)) == len(names)
  for case in cases:
    json.dumps(case.identity())
    required, known = parameters(case.workload)
    given = {*case.parameters} | ({'repeats'} if case.repeats else set())
    assert required <= given <= known, case


@pytest.mark.parametrize('name', FILES)
def test_cases_are_compared_with_one_that_is_compared_with_none(name):
  suite = case_lib.load(name)
  cases = {case.name: case for case in suite.cases(False)}
  compared = [x for x in cases.values() if x.base not in ('', x.name)]
  assert all(cases[x.base].base in ('', x.base) for x in compared)
  # Only a timed suite's runner gives turns.
  assert getattr(suite, 'TIMED', False) or not compared
  assert getattr(suite, 'TIMED', False) == (name not in UNTIMED)


@functools.cache
def parameters(workload):
  """The names that a workload must be given, and may be; read, not imported."""
  module, name = case_lib.module_of(workload), workload.rpartition('.')[2]
  path = ROOT.parent / f'{module.replace(".", "/")}.py'
  tree = ast.parse(path.read_text())
  (function,) = (
    node
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and node.name == name
  )
  names = [argument.arg for argument in function.args.args]
  required = len(names) - len(function.args.defaults)
  return set(names[:required]), set(names)
