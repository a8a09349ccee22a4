"""Claims and ratios follow from the rows, and nothing else does."""

import re

from benchmarks.suites import published
from tests.benchmarks import made

INDEXED = 'forward: PyTorch, indexed, '


def test_claims_are_confirmed_or_corrected_by_what_was_measured():
  rows = [
    made.row(f'{INDEXED}separate, batch 1', 0.7, sequences=1),
    made.row(f'{INDEXED}separate, batch 32', 3.2, sequences=32),
    made.row(f'{INDEXED}fused, batch 32', 6.4, sequences=32),
    made.row('generation: PyTorch, indexed, rerun', 1.0),
  ]
  batches, fused, checkpointed, stepwise, *_ = published.claims(
    {row['case']: row for row in rows}
  )
  assert batches.endswith('7.21 times as fast: **confirmed**, 7 times here.')
  assert fused.endswith('1.02 times as fast: **corrected**, 0.5 times here.')
  assert checkpointed.endswith('1.14 times as fast: not measured here.')
  assert stepwise.endswith('a full re-run: not measured here.')


def test_the_report_holds_only_numbers_of_its_rows(tmp_path):
  missing = {'failure': 'missing', 'error': 'torch is not installed'}
  rows = [
    made.row('training: ours, fused, batch 32', 0.25, sequences=32),
    made.row('training: ours, recurrence removed, batch 32', 0.2, sequences=32),
    made.row('training: PyTorch, careful, separate, batch 32', **missing),
    made.row('generation: ours, one loop', 0.002, seconds_per_token=2e-5),
  ]
  text = made.section(tmp_path, 'published', rows)
  assert '| ours, fused, batch 32 | - | 2.00 s ± 0.00 µs | 32 x 3 |' in text
  assert 'takes 1.25 times the time of the same model without' in text
  assert 'torch is not installed' in text
  assert 'careful PyTorch loop' not in text
  (picture,) = re.findall(r'\((plots/.*?\.png)\)', text)
  assert (tmp_path / picture).stat().st_size > 1000
