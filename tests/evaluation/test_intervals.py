"""Bootstrap intervals; for a mean they match the normal distribution."""

import numpy as np
import pytest

from rnn_jax.evaluation import intervals


def test_an_interval_of_a_mean_is_nearly_1_96_standard_errors_wide():
  x = np.random.default_rng(0).standard_normal(400)
  low, high = intervals.percentile(np.mean, x)
  error = x.std() / 20
  assert low == pytest.approx(x.mean() - 1.96 * error, abs=0.2 * error)
  assert high == pytest.approx(x.mean() + 1.96 * error, abs=0.2 * error)
  assert intervals.percentile(np.mean, x) == [low, high]


def test_columns_stay_together():
  x = np.arange(50)
  same = intervals.percentile(lambda a, b: float(np.mean(a == b)), x, x)
  assert same == [1, 1]


def test_of_one_example_it_is_the_statistic():
  assert intervals.percentile(np.mean, [3.0]) == [3.0, 3.0]


def test_examples_of_a_group_are_drawn_together():
  rng = np.random.default_rng(2)
  groups = np.repeat(np.arange(200), 4)
  x = rng.standard_normal(200)[groups]  # 800 examples that say 200 things

  def mean(total, count):
    return total / count

  low, high = intervals.of_groups(mean, groups, x, np.ones(800))
  error = x.std() / np.sqrt(200)
  assert low == pytest.approx(x.mean() - 1.96 * error, abs=0.2 * error)
  assert high == pytest.approx(x.mean() + 1.96 * error, abs=0.2 * error)
  single = intervals.percentile(np.mean, x)
  assert high - low > 1.7 * (single[1] - single[0])  # 2 but for the draw
  names = [f'dialogue {n}' for n in groups]
  # By name they have another order, but are the same groups.
  named = intervals.of_groups(mean, names, x, np.ones(800))
  assert named == pytest.approx([low, high], abs=0.2 * error)


def test_a_single_batch_has_no_interval():
  assert intervals.of_batches(Mean(), [{'loss': 3.0, 'weight': 2.0}]) == {}


class Mean:
  """A task whose one metric is the loss a token."""

  def summarize(self, sums):
    return {'loss': sums['loss'] / sums['weight']}


def test_batches_are_drawn_whole_and_weigh_by_their_tokens():
  rng = np.random.default_rng(1)
  weights, losses = rng.integers(20, 30, 300), 2 + rng.standard_normal(300) / 9
  sums = [
    {'loss': loss * weight, 'weight': float(weight)}
    for loss, weight in zip(losses, weights, strict=True)
  ]
  (low, high) = intervals.of_batches(Mean(), sums)['loss']
  mean = np.average(losses, weights=weights)
  # The deviation of a ratio's estimate, by linearization.
  error = np.sqrt(np.sum((weights * (losses - mean)) ** 2)) / weights.sum()
  assert low == pytest.approx(mean - 1.96 * error, abs=0.2 * error)
  assert high == pytest.approx(mean + 1.96 * error, abs=0.2 * error)
