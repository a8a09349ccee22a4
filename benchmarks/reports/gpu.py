"""The recurrence on a GPU beside flash-linear-attention, and what uses it."""

from benchmarks import tables

PEER = 'flash-linear-attention'


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  others = [
    (name, tables.timed(row), tables.mebibytes(row.get('temp_bytes')))
    for name, row in found.items()
    if row['subject'].partition('.')[0] in ('ours', 'decoding')
  ]
  parts = [tables.provenance(found), _check(found.get('self-check'))]
  if lines := list(_operators(found)):
    head = ('(B, L, H, K, P), pass', 'who', 'time', 'relative to the peer')
    parts.append(tables.table(head, lines))
  if others:
    head = ('what', 'time', 'XLA temporaries')
    parts.append(tables.table(head, others))
  return '\n\n'.join(part for part in parts if part)


def _check(row):
  if row is None:
    return ''
  if 'error' in row:
    return f'Self-check: {tables.short(row)}.'
  return f'Self-check: all {row["checks"]} checks within their bounds.'


def _operators(found):
  for name, row in found.items():
    if not row['subject'].startswith('operators.'):
      continue
    size, _, who = name.partition(': ')
    peer = tables.good(found, f'{size}: {PEER}')
    both = peer and 'median' in row
    ratio = tables.times(row['median'] / peer['median']) if both else '-'
    yield size, who, tables.timed(row), ratio
