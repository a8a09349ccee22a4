"""Rows chosen and written as Markdown."""

import pytest

from benchmarks.harness import tables
from tests.benchmarks import made


def test_the_newest_row_counts_but_a_missing_peer_hides_none():
  missing = {'failure': 'missing', 'error': 'no torch'}
  rows = [
    made.row('c', 5.0, device='another processor', time='1999'),
    made.row('a', 1.0),
    made.row('a', 2.0),
    made.row('a', 3.0, quick=True),
    made.row('b', 4.0),
    made.row('b', **missing),
    made.row('c', **missing),
    made.row('g', 6.0, device='a GPU', platform='gpu'),
  ]
  chosen = tables.newest(rows)
  assert {p: list(cases) for p, cases in chosen.items()} == {
    'cpu': ['a', 'b', 'c'],
    'gpu': ['g'],
  }
  assert chosen['cpu']['a']['median'] == 2.0
  assert chosen['cpu']['b']['median'] == 4.0
  assert chosen['cpu']['c']['error'] == 'no torch'


def test_a_table_has_a_line_for_each_row_and_errors_in_their_place():
  rows = {'good': made.row('good', 2.0), 'bad': made.failed('bad', 'x | y')}
  columns = {'time': tables.timed, 'least': lambda row: str(row['min'])}
  assert tables.by_row('what', rows, columns) == (
    '| what | time | least |\n'
    '| --- | --- | --- |\n'
    '| good | 2.00 s ± 0.00 µs | 2.0 |\n'
    '| bad | x / y | - |'
  )
  assert [*tables.failures(rows)] == ['bad: x / y']


def test_a_time_and_the_ratios_of_it_are_of_medians():
  row = {'median': 3.0, 'mean': 6.0, 'deviation': 0.5}
  assert tables.timed(row) == '3.00 s ± 500 ms'
  assert tables.timed(row, 2) == '6.00 s ± 1.00 s'


def test_the_noise_floor_is_a_share_of_the_shorter_reference():
  rows = {
    'reference, first': made.row('reference, first', 1.25),
    'reference, last': made.row('reference, last', 1.0),
  }
  assert tables.floor(rows) == 0.25
  assert '25.0 % apart' in tables.provenance(rows)
  del rows['reference, last']
  assert tables.floor(rows) == 0
  assert 'apart' not in tables.provenance(rows)


@pytest.mark.parametrize(
  ('value', 'text'),
  (
    (123.0, '123 s'),
    (1.0, '1.00 s'),
    (0.0123, '12.3 ms'),
    (4.5e-6, '4.50 µs'),
    (1e-9, '0.00 µs'),
  ),
)
def test_seconds_have_three_digits_in_a_unit_that_fits(value, text):
  assert tables.seconds(value) == text


@pytest.mark.parametrize(
  ('error', 'text'),
  (
    ('a | b\n  c', 'a / b c'),
    ('x' * 90, 'x' * 77 + '...'),
    (
      'JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating '
      '34427895808 bytes.',
      'out of memory at 32.1 GiB',
    ),
  ),
)
def test_errors_fit_in_a_cell(error, text):
  assert tables.short({'error': error}) == text
