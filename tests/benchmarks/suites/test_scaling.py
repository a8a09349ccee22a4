"""Exponents, growth and crossings follow from the rows."""

from benchmarks.suites import scaling
from tests.benchmarks import made


def test_exponents_growth_and_crossings(tmp_path):
  rows = []
  for n in (1024, 8192, 65536):
    full = {'temp_bytes': n**2}
    rows += [
      made.row(f'length {n}: ours', n / 1e5, temp_bytes=n),
      made.row(f'length {n}: attention, full', n**2 / 1e9, **full),
    ]
  rows.append(made.failed('length 262144: attention, full', 'killed'))
  text = made.section(tmp_path, 'scaling', rows)
  assert '| ours | 1.00 | 1.00 |' in text
  assert '| attention, full | 2.00 | 2.00 |' in text
  assert 'the time of ours grows 8 times, the length 8 times.' in text
  assert 'Ours is faster than attention, full from 65,536 tokens on.' in text
  assert '| 262,144 | - | killed |' in text
  assert text.count('**confirmed**') == 4
  assert scaling.exponent([(1, 1.0)]) is None
