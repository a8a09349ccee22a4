"""Seconds from a command to the end of its first training step."""

from benchmarks import tables


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  lines = [
    (
      name,
      tables.timed(row),
      '-' if 'error' in row else tables.seconds(row['min']),
    )
    for name, row in found.items()
    if row['subject'] == 'first_step.started'
  ]
  head = ('what', 'to the first step', 'fastest')
  return tables.provenance(found) + '\n\n' + tables.table(head, lines)
