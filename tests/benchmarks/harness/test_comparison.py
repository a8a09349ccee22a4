"""Cases take turns, and their ratios are those of rounds."""

import re
import sys
import types

import numpy as np
import pytest

from benchmarks.harness import case as case_lib
from benchmarks.harness import comparison
from benchmarks.harness import ratios
from benchmarks.harness import rows
from benchmarks.harness import runner
from benchmarks.harness import workers
from rnn_jax import errors

# In the place of harness/worker.py: notes its turns and makes up their times.
WORKER = """
import json, sys
from multiprocessing import connection

flags = dict(flag[2:].split('=') for flag in sys.argv[1:])
case = json.load(open(flags['case']))
if case['workload'] == 'harness.rows.environment':
  values = {'device': 'a', 'platform': 'cpu', 'commit': 'c', 'cores': 8}
  json.dump(values | {'process_peak_bytes': 1}, open(flags['result'], 'w'))
  sys.exit()
times = case['parameters'].get('times', [1.0])
pipe = connection.Connection(int(flags['turns']))
n = 0
while times:
  pipe.send(times[(n - 1) % len(times)] if n else None)
  if not pipe.recv():
    break
  n += 1
  with open('LOG', 'a') as log:
    log.write(case['case'][0])
  if n == case['parameters'].get('dies'):
    sys.exit('out of luck')
json.dump({'median': 1.0, 'deviation': 0.0}, open(flags['result'], 'w'))
"""
# A machine that is twice as slow in every second round.
SLOW = [1.0, 2.0]
CASES = [
  case_lib.Case('base', 'a.b', {'times': SLOW}, 6),
  case_lib.Case('double', 'a.b', {'times': [2.0, 4.0]}, 6, base='base'),
  case_lib.Case('few', 'a.b', {'times': [3.0, 6.0]}, 2, base='base'),
  case_lib.Case('killed', 'a.b', {'dies': 3}, 6, base='base'),
  case_lib.Case('one', 'a.b', {'times': []}, 6),
]


@pytest.fixture(name='folder')
def _folder(tmp_path, monkeypatch):
  log = tmp_path / 'log'
  log.write_text('')
  worker = tmp_path / 'worker.py'
  worker.write_text(WORKER.replace('LOG', str(log)))
  monkeypatch.setattr(workers, 'COMMAND', (sys.executable, str(worker)))
  suite = types.SimpleNamespace(cases=lambda quick: CASES, TIMED=True)
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  return tmp_path


def run(folder, **changes):
  runner.run(runner.Request('made_up', folder=folder, **changes))
  return {row['case']: row for row in rows.read('made_up', folder)}


def test_cases_take_turns_and_are_compared_round_by_round(folder):
  made = run(folder)
  assert [*made] == ['base', 'double', 'few', 'killed', 'one']
  turns = folder.joinpath('log').read_text()
  # The reference begins and ends each round; 'one' takes no turns.
  around = 'r' * comparison.AROUND
  rounds = 2 * ['rbdfkr'] + ['rbdkr'] + 3 * ['rbdr']
  assert turns == around + ''.join(rounds) + 2 * around
  # However slow the machine was.
  double = made['double']
  assert double['ratio'] == double['ratio_low'] == double['ratio_high'] == 2
  assert double['rounds'] == 6 and double['base'] == 'base'
  assert made['few']['ratio'] == 3 and made['few']['rounds'] == 2
  assert made['killed']['error'] == 'exit code 1: out of luck'
  assert {row['floor'] for row in made.values()} == {0.0}
  assert 'ratio' not in made['base'] and made['base']['load'] >= 0


def test_a_base_is_measured_again_with_what_is_compared_with_it(folder):
  made = run(folder, only='few')
  assert [*made] == ['base', 'few'] and made['few']['ratio'] == 3


def test_rounds_are_added_until_the_interval_is_narrow(folder, monkeypatch):
  times = {'times': [1.0, 1.5, 1.1, 1.2, 1.1, 1.1, 1.1]}
  cases = [
    case_lib.Case('base', 'a.b', {}, 3),
    case_lib.Case('noisy', 'a.b', times, 3, base='base'),
  ]
  suite = types.SimpleNamespace(cases=lambda quick: cases, TIMED=True)
  monkeypatch.setattr(case_lib, 'load', lambda name: suite)
  row = run(folder, until=0.02)['noisy']
  assert 3 < row['rounds'] < 3 * comparison.PATIENCE
  assert row['ratio_high'] - row['ratio'] <= 0.02 * row['ratio']
  assert row['ratio'] == 1.1


def test_no_more_processes_than_memory_is_for():
  base = case_lib.Case('base', 'a.b')
  names = 'abcdefghi'
  others = [case_lib.Case(name, 'a.b', base='base') for name in names]
  groups = [*runner.together([base, *others], [base, *others])]
  assert [group[0].name for group in groups] == ['base'] * 3
  after = [[case.name for case in group[1:]] for group in groups]
  assert after == [list('abcd'), list('efgh'), ['i']]


def test_the_interval_of_a_median_has_its_coverage():
  rng = np.random.default_rng(0)
  inside = 0
  for _ in range(100):
    seconds = np.exp(rng.normal(0.5, 0.1, 15))
    ratio = ratios.of(seconds, np.ones(15))
    inside += ratio.low <= np.exp(0.5) <= ratio.high
  # 95 % of intervals hold the true median; those of few rounds fewer.
  assert inside >= 85


@pytest.mark.parametrize('text', ('2', '2%', '2.0 %'))
def test_a_percentage_is_a_share(text):
  assert runner.share(text) == pytest.approx(0.02)


@pytest.mark.parametrize('text', ('', 'x%', '-1%', '100%', 'nan%'))
def test_a_wrong_percentage_is_refused(text):
  with pytest.raises(errors.InputError, match=re.escape(f'--until={text!r}')):
    runner.share(text)
