"""Each suite's report on its own rows, whole and with failures among them.

That the pages are what the rows say is in ../test_report.py.
"""

import pathlib

import pytest

import benchmarks
from benchmarks import report
from benchmarks.harness import case as case_lib
from benchmarks.harness import rows as rows_lib
from benchmarks.harness import tables

SUITES = sorted(
  path.stem
  for path in pathlib.Path(benchmarks.__path__[0], 'suites').glob('*.py')
  if (rows_lib.RESULTS / f'{path.stem}.jsonl').exists()
)
KEPT = 'case', 'parameters', 'quick', 'rehearsal', 'time', 'commit', 'base'
WHERE = 'device', 'platform', 'cores', 'python', 'versions'


def failed(row):
  kept = {key: row[key] for key in (*KEPT, *WHERE) if key in row}
  return kept | {'failure': 'exception', 'error': f'killed | {row["case"]}'}


@pytest.mark.parametrize('name', SUITES)
def test_a_report_names_what_failed(name):
  suite = case_lib.load(name)
  select = getattr(suite, 'select', tables.newest)
  selected = select(rows_lib.read(name))
  assert selected
  for rows in selected.values():
    for kept in (None, 0, 1):  # none, and every other row
      some = {
        case: row if n % 2 == kept else failed(row)
        for n, (case, row) in enumerate(rows.items())
      }
      text = report.of_rows(suite, some, 'docs', 'x', draw=False)
      for row in some.values():
        if row.get('failure') == 'exception':
          assert tables.short(row) in text
