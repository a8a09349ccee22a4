"""Each way of the compression suite runs, and its table says what it shows."""

import pytest

from benchmarks.reports import compression as report
from benchmarks.subjects import compression
from benchmarks.suites import compression as suite

WHERE = {
  'device': 'a processor',
  'cores': 2,
  'python': '3.11',
  'versions': {},
  'commit': 'abc',
  'time': '2000-01-01',
}
CUT = {  # a way, and what it measures last
  'global': '50% zeros, global, trained on',
  'gradual': '50% zeros, gradual',
}


@pytest.fixture(name='begun', scope='module')
def _begun(tmp_path_factory):
  """A job of the rehearsal, and the model that it trains first."""
  given = suite.QUICK
  job = compression.Job(
    tmp_path_factory.mktemp('job'),
    compression._config(given['steps'], given['small']),
    given['more_steps'],
    1,
    given['new_tokens'],
  )
  return job, job.begin()


@pytest.mark.parametrize('way', CUT)
def test_zeros_stay_and_take_no_more_bytes_by_training(way, begun, monkeypatch):
  monkeypatch.setattr(compression, 'SHARES', (0.5,))
  found = dict(compression.WAYS[way](*begun))
  whole, later = found['float32'], found[CUT[way]]
  assert whole['zeros'] < 0.01
  assert later['zeros'] == pytest.approx(0.5, abs=0.02)
  # AdamW's two moments would be twice the parameters besides.
  assert later['bytes'] < 1.2 * whole['bytes']
  assert later['held_bytes'] == whole['held_bytes']


def test_a_student_is_smaller_and_told_with_and_without(begun):
  found = dict(compression.WAYS['distilled'](*begun))
  assert [*found] == ['float32', 'student alone', 'student with its teacher']
  whole, alone, taught = found.values()
  assert alone['held_bytes'] == taught['held_bytes'] < whole['held_bytes']
  assert alone['perplexity'] != taught['perplexity']


def test_the_suite_has_every_way():
  given = [case.parameters.get('ways', 'at_once') for case in suite.cases(True)]
  assert given[1:-1] == [*compression.WAYS]


def variant(bytes_, rate):
  return {
    'zeros': 0.5,
    'perplexity': 2.0,
    'bytes': bytes_,
    'held_bytes': 400,
    'tokens_per_second': rate,
  }


def test_bytes_with_an_optimizer_are_left_out_and_slow_rows_marked():
  variants = {
    'float32': variant(400, 5000.0),
    '50% zeros, at once': variant(200, 1300.0),
    '50% zeros, trained on': variant(900, 4800.0),
  }
  row = {'variants': variants, **WHERE}
  told = report.render({'stdlib_bytes': row}, None)
  assert '| 200 bytes | 2.00 | 400 bytes | 1,300 (disturbed) |' in told
  assert '| - | - | 400 bytes | 4,800 |' in told
  assert '`stdlib_bytes, global`; `stdlib_bytes, gradual`' in told
  row['bytes_of'] = 'parameters'
  told = report.render({'stdlib_bytes': row}, None)
  assert '| 900 bytes | 0.44 | 400 bytes | 4,800 |' in told
