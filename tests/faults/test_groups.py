"""The fuzzer: an attempt of each group, how it judges, its page."""

import dataclasses

import pytest

from tests.faults import base
from tests.faults import commands
from tests.faults import suite

EACH = 1  # attempts of a group: a rehearsal makes 3, a run all
PATIENCE = 20  # times as long: other programs may run beside the tests


@pytest.fixture(scope='module')
def server():
  server = commands.Server()
  yield server
  server.close()


@pytest.fixture(scope='module')
def shared(server, tmp_path_factory):
  return base.Base.make(tmp_path_factory.mktemp('faults'), server)


@pytest.mark.parametrize('name', suite.GROUPS)
def test_attempts_end_well(name, server, shared, monkeypatch):
  monkeypatch.setattr(commands, 'SILENCE', PATIENCE * commands.SILENCE)
  group, _ = suite.GROUPS[name]
  attempts = [
    dataclasses.replace(attempt, timeout=PATIENCE * attempt.timeout)
    for attempt in commands.chosen(group, shared, EACH)
  ]
  values = commands.run_attempts(attempts, [server], shared)
  assert values['tried'] == EACH
  assert not values['defects']


def ended(**changes):
  well = commands.Ended(
    code=1,
    out='',
    err='error: data.path is wrong\n',
    seconds=1.0,
    silence=1.0,
    peak=2**20,
    signalled=False,
    took=None,
    killed=False,
    left=False,
  )
  return dataclasses.replace(well, **changes)


@pytest.mark.parametrize(
  ('changes', 'kind'),
  (
    ({}, None),
    ({'killed': True}, 'hang'),
    ({'code': -11}, 'crash'),
    ({'err': 'Traceback (most recent call last)\nX'}, 'traceback'),
    ({'code': 0}, 'silent'),
    ({'code': 143, 'signalled': True}, 'hang'),
    ({'err': 'error: no idea\n'}, 'misleading'),
    ({'err': 'no line\n'}, 'misleading'),
    ({'code': 3}, 'misleading'),
    ({'silence': 60.0}, 'quiet'),
    ({'peak': 2**40}, 'memory'),
  ),
)
def test_each_kind_of_defect_is_noticed(changes, kind, tmp_path):
  shared = base.Base(*[tmp_path / 'x'] * 5)
  attempt = commands.Attempt('x', 'train', (), says=r'data\.path')
  defect = commands.judge(attempt, ended(**changes), tmp_path, shared)
  assert (defect and defect[0]) == kind


def test_code_that_ran_and_a_wrong_refusal_are_noticed(tmp_path):
  shared = base.Base(*[tmp_path / 'canary'] * 5)
  attempt = commands.Attempt('x', 'train', (), expects='success')
  assert commands.judge(attempt, ended(), tmp_path, shared)[0] == 'refused'
  shared.canary.touch()
  assert commands.judge(attempt, ended(), tmp_path, shared)[0] == 'code run'
  assert not shared.canary.exists()


def test_the_page_has_totals_and_names_each_defect():
  where = {
    'device': 'a CPU',
    'cores': 2,
    'python': '3',
    'versions': {'jax': '1'},
    'commit': 'abc',
    'time': '2026-01-01T00:00',
    'longest_silence': 3.0,
  }
  good = commands.summary(['a', 'b'], [None, None]) | where
  bad = commands.summary(['c'], [('hang', 'never ended')]) | where
  page = '\n'.join(suite.report({'kills': good, 'full disks': bad}, plots=None))
  assert '| all |  | 3 | 2 |' in page
  assert 'full disks, c: hang, never ended' in page
