"""Scales against their definitions, and their inverses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from rnn_jax import errors
from rnn_jax.data.series import scaling
from rnn_jax.data.text import tokenizer as tokenizer_lib

READINGS = st_numpy.arrays(
  np.float64,
  st.integers(1, 30),
  elements=st.floats(-1e9, 1e9, allow_subnormal=False) | st.just(np.nan),
)


@pytest.mark.parametrize('kind', tokenizer_lib.SCALINGS)
@given(readings_N=READINGS)
def test_the_inverse_restores_readings(kind, readings_N):
  scale = scaling.fit(kind, False, readings_N)
  assert scale.scale > 0
  back_N = scale.invert(scale.apply(readings_N))
  seen = readings_N[~np.isnan(readings_N)]
  size = np.abs(seen).max(initial=0) + abs(scale.loc)
  assert np.array_equal(np.isnan(back_N), np.isnan(readings_N))
  np.testing.assert_allclose(back_N, readings_N, rtol=1e-12, atol=1e-15 * size)


def test_scales_are_those_of_their_names():
  y_N = np.array([1.0, 2, 4, np.nan, 8])
  seen = y_N[[0, 1, 2, 4]]
  assert scaling.fit('mean_abs', False, -y_N)[:2] == (0, seen.mean())
  for kind in ('standard', 'standard_window'):
    assert scaling.fit(kind, False, y_N)[:2] == (seen.mean(), seen.std())
  low, middle, high = np.percentile(seen, (25, 50, 75))
  robust = scaling.fit('robust', False, y_N)
  assert robust.loc == middle
  assert robust.scale == pytest.approx((high - low) / 1.349)
  logged = scaling.fit('standard', True, y_N)
  assert logged.loc == pytest.approx(np.log(seen).mean())
  np.testing.assert_allclose(
    logged.invert(logged.apply(seen)), seen, rtol=1e-14
  )
  assert scaling.fit('standard', False, np.full(4, 7.0)).scale == 1
  assert scaling.fit('none', False, y_N)[:2] == (0, 1)


def test_a_logarithm_needs_positive_readings():
  for known in ({}, {'pump': [0.0, 1.0]}):
    scales = tokenizer_lib.Scales('mean_abs', True, known)
    with pytest.raises(errors.InputError, match="'pump' has the reading -2"):
      scaling.of(scales, 'pump', np.array([[1.0], [np.nan], [-2.0]]))


def test_a_run_keeps_scales_by_name(tmp_path):
  scales = tokenizer_lib.Scales('standard', False, {'a': [3.0, 2.0]})
  scales.save(tmp_path / 'tokenizer.json')
  kept = tokenizer_lib.load(tmp_path / 'tokenizer.json')
  own = np.array([[0.0], [10.0]])
  assert scaling.of(kept, 'a', own)[:2] == ([3], [2])
  assert scaling.of(kept, 'new', own)[:2] == ([5], [5])
  several = tokenizer_lib.Scales('standard', False, {'a': [3.0, 2.0, 0.0, 1.0]})
  loc_T, scale_T, _ = scaling.of(several, 'a', np.zeros((1, 2)))
  assert (loc_T.tolist(), scale_T.tolist()) == ([3, 0], [2, 1])
  (tmp_path / 'tokenizer.json').write_text(
    '{"kind": "scales", "scaling": "standard", "log": false,'
    ' "fitted": {"a": [0.0, -1.0]}}'
  )
  with pytest.raises(errors.InputError, match='a location and a scale'):
    tokenizer_lib.load(tmp_path / 'tokenizer.json')
