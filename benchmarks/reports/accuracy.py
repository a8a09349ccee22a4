"""The largest error of each form of the recurrence by kind of gate."""

from benchmarks import tables


def cases(rows):
  """Rows with a case; the first ones of this file had none."""
  named = []
  for row in rows:
    parameters = row.get('parameters', row)
    case = f'{parameters["impl"]}, {parameters["inputs"]}'
    named.append({**row, 'case': case})
  return named


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  measured = {name: row for name, row in found.items() if 'errors' in row}
  gates = list(
    dict.fromkeys(g for row in measured.values() for g in row['errors'])
  )
  lines = [
    [*name.split(', '), *(f'{row["errors"][gate]:.1e}' for gate in gates)]
    for name, row in measured.items()
  ]
  table = tables.table(['implementation', 'inputs', *gates], lines)
  failed = [
    f'{name}: {tables.short(row)}'
    for name, row in found.items()
    if 'error' in row
  ]
  return '\n\n'.join([tables.provenance(found), table, *failed])
