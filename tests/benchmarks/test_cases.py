"""Suites name functions that exist, with parameters that these take."""

import ast
import json
import pathlib

import pytest

import benchmarks
from benchmarks import cases as cases_lib
from rnn_jax import errors

ROOT = pathlib.Path(benchmarks.__path__[0])
UNTIMED = {
  'accuracy',
  'gradient_flow',
  'memory',
  'meshes',
  'planning',
  'prediction',
  'recall',
}
SUITES = sorted(
  path.stem for path in (ROOT / 'suites').glob('*.py') if path.stem[0] != '_'
)


def test_an_unknown_suite_lists_those_that_exist():
  with pytest.raises(errors.InputError) as raised:
    cases_lib.load('bogus')
  assert str(raised.value) == f"--suite='bogus': choose one of {SUITES}"


@pytest.mark.parametrize('quick', (False, True))
@pytest.mark.parametrize('name', SUITES)
def test_cases_fit_their_subjects(name, quick):
  cases = cases_lib.load(name).cases(quick)
  names = [case.name for case in cases]
  assert len(set(names)) == len(names)
  for case in cases:
    json.dumps(case.identity())
    required, known = parameters(case.subject)
    assert required <= {'repeats', *case.parameters} <= known, case


@pytest.mark.parametrize('name', SUITES)
def test_the_first_measurement_is_made_again_at_the_end(name):
  first, *_, last = cases_lib.load(name).cases(False)
  if name in UNTIMED:
    assert 'reference' not in first.name
    return
  assert first.name == 'reference, first' and last.name == 'reference, last'
  assert first.parameters == last.parameters


def parameters(subject):
  """Names that a subject must be given, and may be; read, not imported."""
  module, _, name = subject.partition('.')
  tree = ast.parse((ROOT / 'subjects' / f'{module}.py').read_text())
  (found,) = (
    node
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and node.name == name
  )
  names = [argument.arg for argument in found.args.args]
  return set(names[: len(names) - len(found.args.defaults)]), set(names)
