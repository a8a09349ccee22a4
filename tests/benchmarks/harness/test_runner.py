"""Rows are written, resumed, and hold the errors of whatever fails."""

import re
import sys
import types

import pytest

from benchmarks.harness import case as case_lib
from benchmarks.harness import rows
from benchmarks.harness import runner
from benchmarks.harness import workers
from rnn_jax import errors

# In the place of harness/worker.py: does what the case's parameters say.
WORKER = """
import json, os, signal, sys, time

case, result, *gate = (flag.partition('=')[2] for flag in sys.argv[1:])
case = json.load(open(case))
how = case['parameters'].get('how')
if how == 'kill':
  os.kill(os.getpid(), signal.SIGKILL)
if how == 'exit':
  sys.exit('nothing works')
if how == 'hang':
  time.sleep(600)
if gate:
  from multiprocessing import connection
  def note(what):
    with open(case['parameters']['log'], 'a') as log:
      log.write(what + ' ')
  note('ready')
  pipe = connection.Connection(int(gate[0]))
  pipe.send(None)
  pipe.recv()
  note('begin')
  time.sleep(0.1)
  note('end')
values = {'median': 1.0, 'deviation': 0.0, 'repeats': case['repeats']}
values['flags'] = os.environ.get('XLA_FLAGS')
if case['rehearsal']:
  values = {'kernels': 5, 'registers': 168, 'spilled': 0}
  values |= {'size': case['parameters']['size'], 'median': 1.0}
if case['workload'] == 'harness.rows.environment':
  values = {'device': 'a', 'platform': 'cpu', 'commit': 'c', 'cores': 8}
  values['process_peak_bytes'] = 1
  if os.environ.get('OTHER'):
    values['commit'] = 'of another'
json.dump(values, open(result, 'w'))
"""
CASES = [
  case_lib.Case('good', 'none.one', {'size': [1, 2]}),
  case_lib.Case('killed', 'none.one', {'how': 'kill'}),
  case_lib.Case('exits', 'none.one', {'how': 'exit'}),
  case_lib.Case('hangs', 'none.one', {'how': 'hang'}, timeout=0.5),
  case_lib.Case('elsewhere', 'none.one', platform='gpu'),
  case_lib.Case('too wide', 'none.one', core_limit=9),
  case_lib.Case('once', 'none.one', repeats=0),
  case_lib.Case('last', 'none.one', environment={'XLA_FLAGS': '--b'}),
]


@pytest.fixture(name='folder')
def _folder(tmp_path, monkeypatch):
  worker = tmp_path / 'worker.py'
  worker.write_text(WORKER)
  monkeypatch.setattr(workers, 'COMMAND', (sys.executable, str(worker)))
  monkeypatch.setenv('XLA_FLAGS', '--a')
  suite = types.SimpleNamespace(cases=lambda quick: CASES)
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  return tmp_path


def run(folder, **changes):
  runner.run(runner.Request('made_up', folder=folder, **changes))
  return rows.read('made_up', folder)


def test_each_case_is_a_row_and_what_fails_says_how(folder):
  made = {row['case']: row for row in run(folder)}
  assert {*made} == {case.name for case in CASES}
  assert {name: row.get('failure') for name, row in made.items()} == {
    'good': None,
    'killed': 'killed',
    'exits': 'exception',
    'hangs': 'timeout',
    'elsewhere': 'missing',
    'too wide': 'missing',
    'once': None,
    'last': None,
  }
  assert made['good']['parameters'] == {'size': [1, 2]}
  assert made['good']['device'] == 'a' and made['good']['commit'] == 'c'
  assert made['killed']['error'] == 'killed by SIGKILL'
  assert made['exits']['error'] == 'exit code 1: nothing works'
  assert made['hangs']['error'] == 'not done after 0.5 s'
  assert made['too wide']['error'] == 'needs 9 cores: there are 8'
  assert made['last']['flags'] == '--a --b'


def test_a_row_holds_the_versions_of_the_python_that_ran_it(
  folder, monkeypatch
):
  other = folder / 'python'
  other.write_text(f'#!/bin/sh\nOTHER=1 exec {sys.executable} "$@"\n')
  case = case_lib.Case('there', 'none.one', interpreter=str(other))
  suite = types.SimpleNamespace(cases=lambda quick: [CASES[0], case])
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  with pytest.raises(errors.InputError) as raised:
    run(folder)
  assert str(raised.value).startswith(f"BENCHMARK_PYTHON='{other}': give the")
  other.chmod(0o755)
  here, there = run(folder)
  assert here['commit'] == 'c' and there['commit'] == 'of another'


def test_resume_measures_only_what_has_no_row(folder, monkeypatch, capsys):
  first = run(folder, only='good|killed|elsewhere')
  capsys.readouterr()
  both = run(folder, only='good|killed|elsewhere|last', resume=True)
  # What is missing may be installed by now.
  new = [row['case'] for row in both[len(first) :]]
  assert new == ['elsewhere', 'last']
  assert capsys.readouterr().out.count('has its row') == 2
  # The same name with other parameters is another measurement.
  other = [case_lib.Case('good', 'none.one', {'size': [1, 3]})]
  suite = types.SimpleNamespace(cases=lambda quick: other)
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  assert len(run(folder, resume=True)) == len(both) + 1


def test_repeats_can_be_asked_for(folder):
  (row,) = run(folder, only='good', repeats=3)
  assert row['repeats'] == 3
  *_, row = run(folder, only='once', repeats=3)
  assert row['repeats'] == 0  # takes no such argument


def test_no_case_starts_after_the_minutes(folder, capsys):
  made = run(folder, only='good|once|last', minutes=1e-9)
  assert not made
  assert '3 cases are left for --resume' in capsys.readouterr().out
  made = run(folder, only='good|once|last', minutes=60.0, resume=True)
  assert len(made) == 3


def test_cases_side_by_side_are_timed_one_by_one(folder, monkeypatch):
  log = folder / 'log'
  cases = [case_lib.Case(x, 'none.one', {'log': str(log)}) for x in 'abc']
  suite = types.SimpleNamespace(
    cases=lambda quick: cases, at_once=lambda case: 2
  )
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  assert [row['median'] for row in run(folder)] == [1.0] * 3
  # The third is alone: it waits for nobody.
  assert log.read_text().split() == ['ready'] * 2 + ['begin', 'end'] * 2


def test_a_rehearsal_runs_small_and_compiles_whole(folder, monkeypatch, capsys):
  def cases(quick):
    size = {'size': 1 if quick else 1000}
    return [case_lib.Case(name, f'none.{name}', size) for name in 'ab']

  suite = types.SimpleNamespace(
    cases=cases, PLATFORM='gpu', compiles_ahead=lambda case: case.name == 'a'
  )
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  first, second = run(folder, rehearse=True)
  assert first['parameters'] == {'size': 1} and first['quick']
  assert first['rehearsal']['h100']['size'] == 1000
  assert second['rehearsal'] == {}
  assert 'median' not in first and 'median' not in second
  assert 'a: ran interpreted; for h100: 5 kernels' in capsys.readouterr().out
  assert len(run(folder, rehearse=True, resume=True)) == 2


def test_a_worker_runs_a_case_and_says_what_went_wrong():
  values = workers.environment()
  assert values['platform'] == 'cpu' and values['cores'] >= 1
  assert {*values} >= {'device', 'python', 'versions', 'commit'}
  wrong = case_lib.Case('wrong', 'harness.rows.environment', {'x': 1})
  values = workers.run(wrong)
  assert values['failure'] == 'exception'
  assert values['error'].startswith(
    'TypeError: environment() got an unexpected'
  )


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'only': '('}, "--only='('"),
    ({'only': 'nobody'}, "no case of ['good'"),
    ({'repeats': -1}, '--repeats=-1'),
    ({'rehearse': True}, "--suite='made_up' has no rehearsal"),
  ),
)
def test_a_wrong_request_is_refused(folder, changes, message):
  with pytest.raises(errors.InputError, match=re.escape(message)):
    run(folder, **changes)


def test_a_suite_of_the_gpu_is_refused_without_one(folder, monkeypatch):
  suite = types.SimpleNamespace(cases=lambda quick: CASES, PLATFORM='gpu')
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  with pytest.raises(errors.InputError, match="'made_up' needs a GPU"):
    run(folder)
  assert not rows.read('made_up', folder)
