"""Variants of one training step, and how near each comes to the roofline.

The roofline is the time that the device needs at least: the operations that
the equations need at its measured peak, or its arguments and results moved
once at its measured bandwidth, whichever is longer.
"""

from benchmarks import tables

PEAKS = {'float32': 'peak float32', 'bfloat16': 'peak bfloat16'}
PEAK_OF = {**PEAKS, 'bfloat16_operands': PEAKS['bfloat16']}
BANDWIDTH = 'peak bandwidth'
HEAD = (
  'variant',
  'step',
  'relative',
  'tracing, compiling',
  'XLA temporaries',
  'peak memory',
  'XLA flops',
  'XLA bytes',
  'share of the roofline',
)


def render(found, plots):
  """Markdown of one machine's rows."""
  default = tables.good(found, 'default')
  steps = {
    name: row
    for name, row in found.items()
    if row['subject'] == 'ours.train_step' and row.get('failure') != 'missing'
  }
  lines = [[name, *_cells(row, default, found)] for name, row in steps.items()]
  values = {n: 1e3 * r['median'] for n, r in steps.items() if 'median' in r}
  parts = [
    tables.provenance(found),
    _peaks(found),
    tables.table(HEAD, lines),
    'XLA counts the body of a loop once, so that its flops and bytes are a '
    'floor for whatever loops over time.',
  ]
  if lacking := [
    n for n, row in found.items() if row.get('failure') == 'missing'
  ]:
    parts.append(f'Not for this machine: {", ".join(lacking)}.')
  parts.append(tables.unmeasured('xla_variants', found))
  if values:
    parts.append(plots.bars('steps', values, 'training step, ms'))
  return '\n\n'.join(part for part in parts if part)


def _peaks(found):
  told = []
  for kind, name in PEAKS.items():
    if row := tables.good(found, name):
      told.append(f'{row["flops_per_second"] / 1e9:,.0f} GFLOP/s in {kind}')
  if row := tables.good(found, BANDWIDTH):
    told.append(f'{row["bytes_per_second"] / 1e9:,.1f} GB/s of a copy')
  return f'Peaks measured in the same run: {", ".join(told)}.' if told else ''


def _cells(row, default, found):
  if 'error' in row:
    return [tables.short(row)] + ['-'] * (len(HEAD) - 2)
  share = roofline_share(row, found)
  compiling = row['trace_seconds'], row['compile_seconds']
  return [
    tables.timed(row),
    tables.times(row['median'] / default['median']) if default else '-',
    ', '.join(map(tables.seconds, compiling)),
    tables.mebibytes(row['temp_bytes']),
    tables.mebibytes(row['resident_delta_bytes']),
    _count(row['xla_flops']),
    _count(row['xla_bytes_accessed']),
    '-' if share is None else f'{100 * share:.1f} %',
  ]


def _count(value):
  return '-' if value is None else f'{value:.3g}'


def roofline_share(row, found):
  """The least time by the measured peaks over the time taken, or None."""
  overrides = row['parameters'].get('overrides') or {}
  multiplied = overrides.get('train.precision', 'float32')
  multiplied = overrides.get('train.quantized') or multiplied
  peak = tables.good(found, PEAK_OF.get(multiplied))
  bandwidth = tables.good(found, BANDWIDTH)
  if not peak or not bandwidth or 'needed_flops' not in row:
    return None
  moved = row['argument_bytes'] + row['output_bytes']
  least = max(
    row['needed_flops'] / peak['flops_per_second'],
    moved / bandwidth['bytes_per_second'],
  )
  return least / row['median']
