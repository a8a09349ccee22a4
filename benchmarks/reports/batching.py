"""How much of a batch is padding, and what that costs, by how it is made."""

from benchmarks import tables


def render(found, plots):
  """Markdown of one machine's rows: a table and a plot for each data set."""
  names = dict.fromkeys(
    row['parameters']['name']
    for row in found.values()
    if row['subject'] == 'batching.epoch'
  )
  parts = [tables.provenance(found)]
  for name in names:
    rows = tables.with_prefix(found, f'{name}: ')
    parts += [
      f'**{name}**',
      _told(rows),
      _table(rows),
      _plot(rows, name, plots),
    ]
  return '\n\n'.join(filter(None, parts))


def _told(rows):
  """What all rows of a data set have in common, a sentence; or ''."""
  good = [row for row in rows.values() if 'median' in row]
  if not good:
    return ''
  sizes = good[0]['parameters']['data']
  return (
    f'{good[0]["examples"]:,} examples, rows of {good[0]["length"]:,} tokens '
    f'at most, {sizes["tokens_per_batch"]:,} tokens a batch.'
  )


def _table(rows):
  lines = [
    [
      choice,
      f'{100 * row["padding_efficiency"]:.1f} %',
      f'{len(row["shapes"])} of {row["possible_shapes"]}',
      f'{row["batches"]:,.0f}',
      tables.timed(row),
      tables.rate(row['tokens_per_second']),
      tables.rate(row.get('trained_per_second')),
    ]
    if 'median' in row
    else [choice, tables.timed(row), *'-----']
    for choice, row in rows.items()
  ]
  head = [
    'choice',
    'real tokens',
    'shapes',
    'batches an epoch',
    'an epoch read',
    'tokens/s read',
    'tokens/s trained',
  ]
  return tables.table(head, lines)


def _plot(rows, name, plots):
  shares = {
    choice: 100 * row['padding_efficiency']
    for choice, row in rows.items()
    if 'median' in row
  }
  label = f'{name}: real tokens, % of a batch'
  return plots.bars(name, shares, label) if shares else ''
