"""The recurrence by the length of its chunks: forward and backward.

Every length at every shape, (B, L, H, K, P) in float32, with one decay per key
row and one per head.

  python -m benchmarks.run --suite=chunks
"""

import math

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

BASE = 64  # what the others are compared with
LENGTHS = (32, 64, 128, 256, 512)
SHAPES = (
  [32, 512, 1, 32, 64],
  [8, 2048, 4, 16, 48],
  [4, 4096, 4, 64, 64],
  [1, 4096, 2, 128, 128],
  [1, 16384, 1, 32, 64],
)


def cases(quick: bool) -> list[case.Case]:
  """One case per shape, decay and length of chunks."""
  return [
    case.Case(
      f'{name}{length}',
      'workloads.operators.recurrence',
      {
        'shape': [1, 64, 1, 4, 4] if quick else shape,
        'impl': 'chunked',
        'backward': True,
        'dtype': 'float32',
        'by_head': decay == 'head',
        'chunk_length': length,
      },
      20,
      base=f'{name}{BASE}',
    )
    for shape in SHAPES
    for decay in ('key', 'head')
    for name in [_name(shape, decay)]
    for length in LENGTHS
  ]


def _name(shape, decay):
  return f'{"x".join(map(str, shape))}, one decay a {decay}, chunks of '


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Medians: a line for each shape and decay, a column for each length."""
  by_shape, lengths = {}, set()
  for name, row in rows.items():
    shape, _, length = name.rpartition(', chunks of ')
    if shape:
      by_shape.setdefault(shape, {})[int(length)] = row.get('median')
      lengths.add(int(length))
  lengths = sorted(lengths)
  lines = [
    [
      shape,
      *(tables.seconds(x) if (x := times.get(n)) else '-' for n in lengths),
    ]
    for shape, times in by_shape.items()
  ]
  whole = [times for times in by_shape.values() if all(map(times.get, lengths))]
  if whole:
    ratios = [[x[n] / min(x.values()) for x in whole] for n in lengths]
    means = [math.prod(some) ** (1 / len(some)) for some in ratios]
    lines.append(['relative to the best, mean', *map(tables.times, means)])
  head = ['(B, L, H, K, P)', *(f'{length} steps' for length in lengths)]
  yield tables.table(' | '.join(head), lines)
