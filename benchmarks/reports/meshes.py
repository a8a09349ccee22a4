"""Parallel forms: how far from one device, what devices keep and tell."""

from benchmarks import tables

KEPT = ('parameter', 'gradient', 'optimizer')
SHORT = {
  'all-reduce': 'all-reduce',
  'all-gather': 'all-gather',
  'reduce-scatter': 'reduce-scatter',
  'collective-permute': 'permute',
  'all-to-all': 'all-to-all',
}
HEADS = (
  'mesh',
  'difference',
  'parameters',
  'gradients',
  'optimizer',
  'temporaries',
  'sent a step',
)


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  parts = [tables.provenance(found)]
  for cell in dict.fromkeys(case.partition(':')[0] for case in found):
    rows = tables.with_prefix(found, f'{cell}: ')
    lines = [_line(name, row) for name, row in rows.items()]
    parts += [f'**{cell}**', tables.table([*HEADS], lines)]
  return '\n\n'.join(parts)


def _line(name, row):
  if 'difference' not in row:
    return [name, tables.short(row), *['-'] * (len(HEADS) - 2)]
  shares = [
    f'{row[f"{kept}_bytes"] / row[f"{kept}_bytes_alone"]:.1%}' for kept in KEPT
  ]
  temporaries = f'{row["temp_bytes"] / row["temp_bytes_alone"]:.1%}'
  sent = ', '.join(
    f'{SHORT[opcode]} {count / 1024:,.0f} KiB'
    for opcode, count in sorted(row['sent_bytes'].items())
  )
  return [name, f'{row["difference"]:.1e}', *shares, temporaries, sent]
