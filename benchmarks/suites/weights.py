"""Decoding with weights in 32 to 4 bits, by how many rows write at once.

  python -m benchmarks.run --suite=weights      10 minutes on 2 cores

A Mamba-2 of the published 130 million's shape, with random weights. Writing a
token reads all of them: with one row, the bytes of the weights are the limit,
and with many the products are.
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True
PLATFORM = 'cpu'

ROWS = (1, 4, 16)
XLA = 'float32, XLA'  # not packed
FORMATS = (XLA, 'float32', 'bfloat16', 'int8', 'int8_blocks', 'int4')
SMALL = {
  'new_tokens': 2,
  'sizes': {'vocabulary': 64, 'model.width': 32, 'model.layers': 1},
}


def cases(quick: bool) -> list[case.Case]:
  """Each format beside XLA's float32 product, in turns."""
  small = SMALL if quick else {}
  return [
    case.Case(
      f'{name}, rows {rows}',
      'workloads.packed.decoding',
      {'format': '' if name == XLA else name, 'rows': rows, **small},
      base=f'{XLA}, rows {rows}',
    )
    for rows in ROWS[: 1 if quick else None]
    for name in FORMATS
  ]


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Tokens/s of all rows together; beside the same number of rows by XLA."""
  named = {
    name: {n: rows.get(f'{name}, rows {n}', {}) for n in ROWS}
    for name in FORMATS
  }
  yield tables.table(
    'weights | MB | ' + ' | '.join(f'{n} rows, tokens/s' for n in ROWS),
    [
      (name, _megabytes(found), *(_rate(found[n], rows) for n in ROWS))
      for name, found in named.items()
    ],
  )
  yield tables.unmeasured(cases(False), rows)


def _megabytes(found):
  sizes = [row['bytes'] for row in found.values() if 'bytes' in row]
  return f'{sizes[0] / 1e6:.0f}' if sizes else '-'


def _rate(row, rows):
  if 'median' not in row:
    return '-'
  rate = tables.rate(row['tokens_per_second'])
  return f'{rate} ({tables.relative(row, rows.get(row.get("base")))})'
