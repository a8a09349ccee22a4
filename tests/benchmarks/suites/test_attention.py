"""What blocks of attention save follows from the rows."""

import re

from tests.benchmarks import made


def test_ratios_differences_and_rows_seen_whole(tmp_path):
  rows = [
    made.row(f'length 8192: {name}', seconds, temp_bytes=mebibytes * 2**20)
    for name, seconds, mebibytes in (
      ('exact', 8.0, 4000),
      ('blocked', 6.0, 200),
      ('window 256', 0.75, 150),
    )
  ]
  apart = {'y': 1.25e-7, 'q': 2.5e-7}
  rows.append(made.row('difference 8192: blocked', differences=apart))
  rows.append(made.row('row 197: linear, state', 0.5, temp_bytes=3 * 2**20))
  text = made.section(tmp_path, 'attention', rows)
  assert '| 8,192 | 8.00 s, 4,000 MiB | 6.00 s, 200 MiB | 750 ms, ' in text
  assert '* At 8,192 steps, blocks take 1/20 of the temporaries' in text
  assert 'window 256 is 8 times as fast as the faster form' in text
  assert 'of full attention, blocked.' in text
  assert 'at 8,192 steps by at most' in text and 'y 1.2e-07, q 2.5e-07' in text
  assert '| row | linear, state |' in text and '| 197 | 500 ms, 3' in text
  assert len(re.findall(r'\(plots/.*?\.png\)', text)) == 2


def test_a_comparison_that_failed_says_so(tmp_path):
  rows = [made.failed('difference 8192: blocked', 'killed by it')]
  text = made.section(tmp_path, 'attention', rows)
  assert 'Difference at 8192: blocked: killed by it.' in text
