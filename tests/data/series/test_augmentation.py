"""Series that training varies, against plain loops in float64."""

import numpy as np
import pytest

from rnn_jax.data.series import augmentation
from tests.support import labelled_series

CLASS = np.array([1.0])


def times(speed_K, L):
  """When each reading is drawn from: the sum of the speeds before it."""
  knots = np.linspace(0, 1, len(speed_K))
  speeds = [np.interp(t / (L - 2), knots, speed_K) for t in range(L - 1)]
  time = [sum(speeds[:t]) for t in range(L)]
  return np.array(time) / time[-1] * (L - 1)


def test_warped_readings_are_on_the_lines_between_readings():
  rng = np.random.default_rng(0)
  values = rng.normal(size=(23, 2))
  speed = np.array([0.5, 2.0, 1.0, 3.0])
  got = augmentation.between(values, augmentation.times(speed, 23))
  at = times(speed, 23)
  wanted = [np.interp(at, np.arange(23), x) for x in values.T]
  np.testing.assert_allclose(got, np.stack(wanted, 1), atol=1e-9)
  even = augmentation.times(np.full(4, 2.0), 23)
  np.testing.assert_allclose(even, np.arange(23), atol=1e-9)


def test_a_reading_beside_a_missing_one_is_missing():
  values = np.arange(12.0)[:, None]
  values[5] = np.nan
  speed = np.array([1.0, 3.0])
  got = augmentation.between(values, augmentation.times(speed, 12))[:, 0]
  at = times(speed, 12)
  assert np.array_equal(np.isnan(got), np.abs(at - 5) < 1)
  assert np.isnan(got).any() and not np.isnan(got[[0, -1]]).any()


def test_an_offset_has_the_spread_of_the_levels():
  """Levels -3, 0 and 3; the second channel's are alike, and it has none."""
  wave = np.array([-1.0, np.nan, 1.0, 0.0])
  series = [np.stack([wave + level, wave], 1) for level in (-3.0, 0.0, 3.0)]
  made = augmentation.Augmentation(0.0, 0.5, series)
  rng = np.random.default_rng(1)
  drawn = np.stack([made.apply(series[1], CLASS, rng)[0] for _ in range(800)])
  assert drawn.dtype == np.float32
  moved = drawn - series[1]
  seen = moved[:, [0, 2, 3]]
  assert np.isnan(moved[:, 1]).all() and (seen[..., 1] == 0).all()
  assert (np.ptp(seen[..., 0], axis=1) < 1e-5).all()
  wanted = 0.5 * np.sqrt(6.0)  # of -3, 0 and 3
  assert seen[:, 0, 0].std() == pytest.approx(wanted, rel=0.1)
  empty = [np.full((3, 1), np.nan), np.ones((3, 1))]
  made = augmentation.Augmentation(0.0, 0.5, empty)
  assert (made.apply(empty[1], CLASS, rng)[0] == 1).all()


def test_a_warp_keeps_the_ends_and_the_range():
  values = np.random.default_rng(2).normal(size=(9, 1)).astype(np.float32)
  made = augmentation.Augmentation(0.5, 0.0, [values])
  rng = np.random.default_rng(3)
  drawn = [made.apply(values, CLASS, rng)[0] for _ in range(3)]
  for each in drawn:
    assert not np.allclose(each, values)
    np.testing.assert_allclose(each[[0, -1]], values[[0, -1]], rtol=1e-6)
    assert each.min() >= values.min() and each.max() <= values.max()
  assert not np.allclose(drawn[0], drawn[1])


def test_only_training_varies_and_by_epoch(tmp_path):
  path = tmp_path / 't.csv'
  labelled_series.frame().to_csv(path, index=False)
  changes = {'data.offset': 0.1, 'data.warp': 0.2}
  raw = labelled_series.raw_config(path, **changes)
  config, corpus = labelled_series.corpus(raw)

  def read(n, epoch, seed, **piece):
    made = corpus.examples(config.data, 'train', seed)
    return made.read(n, epoch=epoch, **piece).readings_LxW

  first = read(1, 0, 3)
  np.testing.assert_array_equal(first, read(1, 0, 3))
  np.testing.assert_array_equal(first[2:4], read(1, 0, 3, start=2, stop=5))
  for n, epoch, seed in ((1, 1, 3), (1, 0, 4)):
    assert not np.array_equal(first, read(n, epoch, seed), equal_nan=True)
  plain = read(1, 0, None)
  np.testing.assert_array_equal(plain, read(1, 5, None))
  assert plain.shape == first.shape and not np.array_equal(plain, first)


def test_labels_of_steps_move_with_their_readings():
  """Readings are their own labels; a short series isn't warped."""
  values = np.arange(40.0)[:, None]
  made = augmentation.Augmentation(0.5, 0.0, [values])
  rng = np.random.default_rng(4)
  readings, labels = made.apply(values, values[:, 0], rng)
  np.testing.assert_array_equal(labels, np.rint(readings[:, 0]))
  assert not np.array_equal(labels, values[:, 0])
  readings, label = made.apply(values, CLASS, rng)
  assert label is CLASS
  for length in (1, 2):
    readings, labels = made.apply(values[:length], values[:length, 0], rng)
    np.testing.assert_array_equal(readings, values[:length])
    np.testing.assert_array_equal(labels, values[:length, 0])
