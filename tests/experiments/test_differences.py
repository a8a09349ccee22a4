"""What counts as a difference: more than the seeds', and more than noise."""

import statistics

import pytest

from rnn_jax.experiments import differences


def figure(*values, first_seed=0):
  deviation = statistics.stdev(values) if len(values) > 1 else None
  return {
    'mean': statistics.fmean(values),
    'deviation': deviation,
    'values': dict(enumerate(values, first_seed)),
  }


CASES = {
  'one seed, above rounding': ('loss', (2.0,), (2.003,), True),
  'one seed, rounding': ('loss', (2.0,), (2.000003,), False),
  'equal seeds, rounding': ('loss', (2.0, 2.0), (2.000003,) * 2, False),
  'above the spread': ('loss', (2.0, 2.1), (2.3, 2.31), True),
  'now above, now below': ('loss', (2.0, 2.8), (2.3, 2.31), False),
  'above with each seed': ('loss', (2.0, 2.8), (2.3, 3.05), True),
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


def test_variants_with_other_seeds_differ_by_their_means():
  first, second = figure(2.0, 2.8), figure(2.3, 3.05, first_seed=1)
  difference = differences.between(first, second)
  assert difference.mean == pytest.approx(-0.275)
  assert difference.spread == first['deviation'] > second['deviation']
  assert not differences.seen('loss', first, second)


def test_only_common_seeds_are_compared():
  first, second = figure(2.0, 2.8, 9.0), figure(2.3, 3.05)
  difference = differences.between(first, second)
  assert difference.mean == pytest.approx(-0.275)
  assert difference.spread == pytest.approx(0.05 / 2**0.5)


def test_a_leader_that_is_behind_with_common_seeds_is_not_seen():
  first, second = figure(2.3, 2.4, 0.1), figure(2.0, 2.1)
  assert first['mean'] < second['mean']
  assert differences.between(first, second).mean > 0
  assert not differences.seen('loss', first, second)
  assert not differences.seen('loss', second, first)


def test_all_that_are_as_good_as_the_best():
  figures = {'a': figure(1.0), 'b': figure(1.5), 'c': figure(1.0001)}
  assert differences.level('loss', 'a', figures) == ['a', 'c']
  assert differences.level('loss', 'b', figures) == ['b']
