"""Tokens a second of the input pipeline, the step, and both."""

from benchmarks import tables


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  lines = []
  for name, row in found.items():
    if not row['subject'].startswith('data.'):
      continue
    share = row.get('waiting_share')
    lines.append(
      (
        name,
        tables.timed(row),
        tables.rate(row.get('tokens_per_second')),
        '-' if share is None else f'{100 * share:.1f} %',
      )
    )
  head = ('what', 'a batch', 'tokens/s', 'time waiting for data')
  return tables.provenance(found) + '\n\n' + tables.table(head, lines)
