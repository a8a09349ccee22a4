"""Attention by its length: forward and backward, 8 heads of 64.

All scores at once, in blocks, in blocks within a window, and to the keys of the
highest scores; and how far blocks are from all at once. Rows of which each step
sees the whole, in the forms of `ops.row_attention`: batches of 4, 3 heads.

  python -m benchmarks.run --suite=attention
"""

from benchmarks.harness import case
from benchmarks.harness import curves
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

LENGTHS = [2**n for n in range(9, 15)]  # 512 to 16,384
LONGEST_TOP = 8192  # finding the highest scores takes long
BASE = 'exact'  # what the other forms are compared with
COMPARED = 8192  # the length at which forms are compared
FORMS = {
  'exact': {'options': {'impl': 'exact'}},
  'blocked': {'options': {'impl': 'blocked'}},
  'window 1024': {'options': {'impl': 'blocked'}, 'window': 1024},
  'window 256': {'options': {'impl': 'blocked'}, 'window': 256},
  'top 64': {'options': {'impl': 'blocked', 'top_k': 64}},
}
ROWS = (64, 197, 1024, 4096)  # patches of images
ROW_FORMS = {  # by weights
  'softmax': ('pairs', 'blocked'),
  'linear': ('pairs', 'state'),
}


def cases(quick: bool) -> list[case.Case]:
  """Short rows first."""
  lengths = (64, 128) if quick else LENGTHS
  listed = [
    case.Case(
      f'length {length}: {name}',
      'workloads.operators.attention',
      {'shape': _shape(length, quick), **parameters},
      10 if length <= 2048 else 3,
      base=f'length {length}: {BASE}',
    )
    for length in lengths
    for name, parameters in FORMS.items()
    if parameters.get('window', 0) < length
    and (length <= LONGEST_TOP or not name.startswith('top'))
  ]
  compared = lengths[-1] if quick else COMPARED
  difference = case.Case(
    f'difference {compared}: blocked',
    'workloads.operators.attention_difference',
    {'shape': _shape(compared, quick)},
    repeats=0,
  )
  return [*listed, difference, *_rows(quick)]


def _rows(quick):
  for length in (8,) if quick else ROWS:
    for weights, impls in ROW_FORMS.items():
      # Of a Vision-BDH's neurons, or a ViT's heads.
      wide = [1024, 192] if weights == 'linear' else [64, 64]
      sizes = [1, length, 1, 8, 8] if quick else [4, length, 3, *wide]
      for impl in impls:
        yield case.Case(
          f'row {length}: {weights}, {impl}',
          'workloads.operators.row_attention',
          {'shape': sizes, 'options': {'weights': weights, 'impl': impl}},
          10 if length <= 1024 else 3,
          base=f'row {length}: {weights}, pairs',
        )


def _shape(length, quick):
  return [1, length, 1, 8, 8] if quick else [1, length, 8, 64, 64]


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Times (medians) and temporaries by length, and what blocks save."""
  by_length = curves.of(rows, 'length')
  yield curves.table(by_length, 'length')
  yield from curves.pictures(by_length, 'length', plots, 'forward and backward')
  yield '\n'.join(f'* {line}' for line in _ratios(by_length))
  yield from map(_difference, tables.with_prefix(rows, 'difference ').items())
  if whole := curves.of(rows, 'row'):
    yield 'Each step sees all of its row, later steps included:'
    yield curves.table(whole, 'row')
  yield tables.unmeasured(cases(False), rows)


def _ratios(by_length):
  at = {name: curve.get(COMPARED, {}) for name, curve in by_length.items()}
  bytes_, times = (
    {name: row[key] for name, row in at.items() if row.get(key)}
    for key in ('temp_bytes', 'median')
  )
  if {'exact', 'blocked'} <= bytes_.keys():
    ratio = bytes_['exact'] / bytes_['blocked']
    yield (
      f'At {COMPARED:,} steps, blocks take 1/{ratio:.3g} of the temporaries of '
      'all scores at once.'
    )
  full = {name: times[name] for name in ('exact', 'blocked') if name in times}
  if not full:
    return
  best = min(full, key=full.get)
  for name, seconds in times.items():
    if name not in full:
      ratio, word = full[best] / seconds, 'fast'
      if ratio < 1:
        ratio, word = 1 / ratio, 'slow'
      yield (
        f'At {COMPARED:,} steps, {name} is {ratio:.3g} times as {word} as the '
        f'faster form of full attention, {best}.'
      )


def _difference(item):
  name, row = item
  if 'differences' not in row:
    return f'Difference at {name}: {tables.short(row)}.'
  length = int(name.partition(':')[0])
  shares = ', '.join(f'{key} {x:.1e}' for key, x in row['differences'].items())
  return (
    f'Blocks and all scores at once differ at {length:,} steps by at most this '
    'share of the largest number of y and of the gradients of q, k, v: '
    f'{shares}.'
  )
