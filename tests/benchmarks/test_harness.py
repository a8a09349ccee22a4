"""Rows are written, resumed, and hold the errors of whatever fails."""

import re
import sys
import types

import pytest

from benchmarks import cases as cases_lib
from benchmarks import children
from benchmarks import harness
from benchmarks import rows
from rnn_jax import errors

# Stands for benchmarks.child: does what the case's parameters say.
CHILD = """
import json, os, signal, sys, time

case, result = (flag.partition('=')[2] for flag in sys.argv[1:])
case = json.load(open(case))
how = case['parameters'].get('how')
if how == 'kill':
  os.kill(os.getpid(), signal.SIGKILL)
if how == 'exit':
  sys.exit('nothing works')
if how == 'hang':
  time.sleep(600)
values = {'median': 1.0, 'deviation': 0.0, 'repeats': case['repeats']}
if case['subject'] == 'probe.environment':
  values = {'environment': {'device': 'a', 'platform': 'cpu', 'commit': 'c'}}
  values['environment']['cores'] = 8
values['flags'] = os.environ.get('XLA_FLAGS')
json.dump(values, open(result, 'w'))
"""
CASES = [
  cases_lib.Case('good', 'none.one', {'size': [1, 2]}),
  cases_lib.Case('killed', 'none.one', {'how': 'kill'}),
  cases_lib.Case('exits', 'none.one', {'how': 'exit'}),
  cases_lib.Case('hangs', 'none.one', {'how': 'hang'}, timeout=0.5),
  cases_lib.Case('elsewhere', 'none.one', platform='gpu'),
  cases_lib.Case('too wide', 'none.one', core_limit=9),
  cases_lib.Case('last', 'none.one', environment={'XLA_FLAGS': '--b'}),
]


@pytest.fixture(name='folder')
def _folder(tmp_path, monkeypatch):
  child = tmp_path / 'child.py'
  child.write_text(CHILD)
  monkeypatch.setattr(children, 'COMMAND', (sys.executable, str(child)))
  monkeypatch.setenv('XLA_FLAGS', '--a')
  suite = types.SimpleNamespace(cases=lambda quick: CASES)
  monkeypatch.setattr(cases_lib, 'load', lambda name: suite)
  return tmp_path


def run(folder, **changes):
  harness.run(harness.Request('made_up', folder=folder, **changes))
  return rows.read('made_up', folder)


def test_each_case_is_a_row_and_what_fails_says_how(folder):
  found = {row['case']: row for row in run(folder)}
  assert list(found) == [case.name for case in CASES]
  assert {name: row.get('failure') for name, row in found.items()} == {
    'good': None,
    'killed': 'killed',
    'exits': 'exception',
    'hangs': 'timeout',
    'elsewhere': 'missing',
    'too wide': 'missing',
    'last': None,
  }
  assert found['good']['parameters'] == {'size': [1, 2]}
  assert found['good']['device'] == 'a' and found['good']['commit'] == 'c'
  assert found['killed']['error'] == 'killed by SIGKILL'
  assert found['exits']['error'] == 'exit code 1: nothing works'
  assert found['hangs']['error'] == 'not done after 0.5 s'
  assert found['too wide']['error'] == 'needs 9 cores: there are 8'
  assert found['last']['flags'] == '--a --b'


def test_resume_measures_only_what_has_no_row(folder, monkeypatch, capsys):
  first = run(folder, only='good|killed|elsewhere')
  capsys.readouterr()
  both = run(folder, only='good|killed|elsewhere|last', resume=True)
  # Nothing is missing for good: where it was, it may be by now.
  new = [row['case'] for row in both[len(first) :]]
  assert new == ['elsewhere', 'last']
  assert capsys.readouterr().out.count('has its row') == 2
  # The same name with other parameters is another measurement.
  other = [cases_lib.Case('good', 'none.one', {'size': [1, 3]})]
  suite = types.SimpleNamespace(cases=lambda quick: other)
  monkeypatch.setattr(cases_lib, 'load', lambda name: suite)
  assert len(run(folder, resume=True)) == len(both) + 1


def test_repeats_can_be_asked_for(folder):
  (row,) = run(folder, only='good', repeats=3)
  assert row['repeats'] == 3


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'only': '('}, "--only='('"),
    ({'only': 'nobody'}, "no case of ['good'"),
    ({'repeats': -1}, '--repeats=-1'),
  ),
)
def test_a_wrong_request_is_refused(folder, changes, message):
  with pytest.raises(errors.InputError, match=re.escape(message)):
    run(folder, **changes)


def test_a_suite_of_the_gpu_is_refused_without_one(folder, monkeypatch):
  suite = types.SimpleNamespace(cases=lambda quick: CASES, PLATFORM='gpu')
  monkeypatch.setattr(cases_lib, 'load', lambda name: suite)
  with pytest.raises(errors.InputError, match="'made_up' needs a GPU"):
    run(folder)
  assert not rows.read('made_up', folder)
