"""What the reports say of figures that lie near one another."""

import pytest

from benchmarks import tables
from benchmarks.reports import decode
from benchmarks.reports import remat


def row(median, **others):
  return {'median': median, 'mean': 2 * median, 'deviation': 0.5, **others}


def test_a_time_and_the_ratios_of_it_are_of_medians():
  assert tables.timed(row(3.0)) == '3.00 s ± 500 ms'
  assert tables.timed(row(3.0), 2) == '6.00 s ± 1.00 s'


def test_the_noise_floor_is_a_share_of_the_shorter_reference():
  found = {'reference, first': row(1.25), 'reference, last': row(1.0)}
  assert tables.floor(found) == 0.25
  assert '25.0 % apart' in tables.noise(found)
  assert tables.floor({'reference, first': row(1.0)}) == 0


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
  rows = {
    'uniform, sqrt': row(1.0, temp_bytes=100),
    'binomial': row(seconds, temp_bytes=bytes_),
  }
  told = remat._verdict('binomial', rows, 0.1)
  assert told.startswith(f'{bytes_ / 100:.2f} x memory, {seconds:.2f} x time')
  assert told.endswith(': not better than uniform, sqrt') == (not good)
  assert remat._verdict('uniform, sqrt', rows, 0.1) == '-'


def test_a_schedule_that_beats_one_uniform_names_another_it_does_not():
  rows = {
    'uniform, every 8': row(1.0, temp_bytes=60),
    'uniform, sqrt': row(1.0, temp_bytes=100),
    'logarithmic': row(1.0, temp_bytes=80),
  }
  told = remat._verdict('logarithmic', rows, 0.0)
  assert told.endswith(': not better than uniform, every 8')


def test_a_token_s_latency_is_the_least_of_the_repeats():
  measured = row(0.5, seconds_per_token=0.005, min=0.25)
  assert decode.per_token(measured) == 0.0025
  told = decode.render({'one step': _one_step(measured)}, None)
  assert '| one step | 250 ms | 500 ms ± 500 ms | 3 |' in told
  assert 'least 250 ms, p50 500 ms, p95 1.00 s, p99 2.00 s.' in told


def _one_step(measured):
  where = {
    'device': 'a processor',
    'cores': 2,
    'python': '3.11',
    'versions': {},
    'commit': 'abc',
    'time': '2000-01-01',
  }
  percentiles = {'p50': 0.5, 'p95': 1.0, 'p99': 2.0, 'repeats': 3}
  return measured | percentiles | where
