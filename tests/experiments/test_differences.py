"""What counts as a difference: more than the seeds', and more than noise."""

import statistics

import pytest

from rnn_jax.experiments import differences


def figure(*values):
  deviation = statistics.stdev(values) if len(values) > 1 else None
  return {'mean': statistics.fmean(values), 'deviation': deviation}


CASES = {
  'one seed, above rounding': ('loss', (2.0,), (2.003,), True),
  'one seed, rounding': ('loss', (2.0,), (2.000003,), False),
  'equal seeds, rounding': ('loss', (2.0, 2.0), (2.000003,) * 2, False),
  'above the spread': ('loss', (2.0, 2.1), (2.3, 2.31), True),
  'within the larger spread': ('loss', (2.0, 2.8), (2.3, 2.31), False),
  'below zero': ('score', (-2.0,), (-2.1,), True),
  'a time with one seed': ('seconds', (10.0,), (10.9,), False),
  'a longer time': ('seconds', (10.0,), (12.0,), True),
  'a time with known spread': ('seconds', (10.0, 10.1), (10.9, 11), True),
  'memory that is counted': ('step_bytes', (100,), (104,), True),
}


@pytest.mark.parametrize('case', CASES)
def test_a_difference_is_seen_or_not(case):
  key, first, second, seen = CASES[case]
  first, second = figure(*first), figure(*second)
  assert differences.seen(key, first, second) is seen
  assert differences.seen(key, second, first) is seen


def test_all_that_are_as_good_as_the_best():
  figures = {'a': figure(1.0), 'b': figure(1.5), 'c': figure(1.0001)}
  assert differences.level('loss', 'a', figures) == ['a', 'c']
  assert differences.level('loss', 'b', figures) == ['b']
