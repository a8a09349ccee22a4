"""A latency is the least of the repeats."""

from benchmarks.suites import decode
from tests.benchmarks import made


def test_a_token_s_latency_is_the_least_of_the_repeats(tmp_path):
  row = made.row('one step', 0.5, seconds_per_token=0.005)
  row |= {'deviation': 0.5, 'min': 0.25, 'p50': 0.5, 'p95': 1.0, 'p99': 2.0}
  assert decode.per_token(row) == 0.0025
  text = made.section(tmp_path, 'decode', [row])
  assert '| one step | 250 ms | 500 ms ± 500 ms | 3 |' in text
  assert 'least 250 ms, p50 500 ms, p95 1.00 s, p99 2.00 s.' in text
