"""A schedule is better by more than noise, or it isn't called so."""

import pytest

from benchmarks.suites import remat


def row(seconds, bytes_):
  return {'median': seconds, 'temp_bytes': bytes_}


# Against 100 bytes and 1 s, with a noise floor of a tenth.
@pytest.mark.parametrize(
  ('bytes_', 'seconds', 'good'),
  (
    (98, 1.12, False),
    (96, 0.95, False),
    (96, 0.90, True),
    (95, 1.50, True),
    (101, 0.80, True),
  ),
)
def test_a_schedule_is_better_by_more_than_noise(bytes_, seconds, good):
  rows = {'uniform, sqrt': row(1.0, 100), 'binomial': row(seconds, bytes_)}
  text = remat.verdict('binomial', rows, 0.1)
  assert text.startswith(f'{bytes_ / 100:.2f} x memory, {seconds:.2f} x time')
  assert text.endswith(': not better than uniform, sqrt') == (not good)
  assert remat.verdict('uniform, sqrt', rows, 0.1) == '-'


def test_a_schedule_that_beats_one_uniform_names_another_it_does_not():
  rows = {
    'uniform, every 8': row(1.0, 60),
    'uniform, sqrt': row(1.0, 100),
    'logarithmic': row(1.0, 80),
  }
  text = remat.verdict('logarithmic', rows, 0.0)
  assert text.endswith(': not better than uniform, every 8')
