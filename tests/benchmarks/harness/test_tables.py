"""Rows chosen and written as Markdown."""

import pytest

from benchmarks.harness import case
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


def test_rows_by_device_keep_each_device_s_newest():
  rows = [
    made.row('a', 1.0, device='one'),
    made.row('b', 2.0, device='one'),
    made.row('a', 3.0, device='two'),
    made.row('a', 4.0, device='one'),
  ]
  chosen = tables.newest_by_device(rows)
  medians = {
    device: {name: row['median'] for name, row in cases.items()}
    for device, cases in chosen.items()
  }
  assert medians == {'one': {'b': 2.0, 'a': 4.0}, 'two': {'a': 3.0}}


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
  assert not [*tables.failures(rows, 'bad | x / y |')]
  lacking = {'peer': made.row('peer', failure='missing', error='no torch')}
  assert not [*tables.failures(lacking)]


def test_cases_without_a_row_are_listed():
  cases = [
    case.Case('a', 'x'),
    case.Case('b', 'x'),
    case.Case('c', 'x', platform='gpu'),
  ]
  text = tables.unmeasured(cases, {'a': made.row('a', 1.0)})
  assert text == 'Not measured yet: `b`.'
  assert tables.unmeasured(cases[:1], {'a': made.row('a', 1.0)}) == ''


def test_a_time_and_the_ratios_of_it_are_of_medians():
  row = {'median': 3.0, 'mean': 6.0, 'deviation': 0.5}
  assert tables.timed(row) == '3.00 s ± 500 ms'
  assert tables.timed(row, 2) == '6.00 s ± 1.00 s'


def test_rows_that_other_work_disturbed_are_named():
  rows = {
    'calm': made.row('calm', 1.0, floor=0.01),
    'usual': made.row('usual', 1.0, floor=0.02),
    'disturbed': made.row('disturbed', 1.0, floor=0.3),
  }
  text = tables.provenance(rows)
  assert 'Noise floor: 2.0 %' in text
  assert '1 of 3 rows, marked \\*, are too noisy' in text
  assert tables.timed(rows['disturbed']) == '1.00 s ± 0.00 µs \\*'
  assert 'floor' not in tables.provenance({'a': made.row('a', 1.0)})


def test_a_ratio_is_that_of_rounds_where_there_were_any():
  base = made.row('base', 1.0)
  turns = {'base': 'base', 'ratio': 2.0, 'ratio_low': 1.6, 'ratio_high': 2.5}
  a, b = made.row('a', 9.0, **turns), made.row('b', 9.0, **turns, sequences=2)
  assert tables.relative(a, base) == '2.00 x (1.60 to 2.50)'
  assert tables.speed(a, base) == '0.50 x (0.40 to 0.62)'
  # Of one sequence, where a row has two.
  assert tables.relative(b, base) == '1.00 x (0.80 to 1.25)'
  assert tables.ratio(a, b) == 2 and tables.ratio(base, a) == 0.5
  # Medians, where the two were not compared.
  assert tables.ratio(made.row('c', 3.0), a) == 1 / 3
  assert tables.relative(made.row('c', 3.0), base) == '3.00 x'
  assert tables.relative(made.failed('d', 'x'), base) == '-'


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
