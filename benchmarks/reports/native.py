"""The native recurrence beside the chunked form and no recurrence at all."""

from benchmarks import tables


def cases(rows):
  """Rows by jax's version too: each keeps its own."""
  return [
    row | {'case': f'{row["case"]}; jax {row["versions"]["jax"]}'}
    for row in rows
  ]


def render(found, plots):
  """Markdown of one machine's rows."""
  del plots
  measured = {n: row for n, row in found.items() if 'forms' in row}
  lines = [
    _line(case, name, form, row['base'])
    for case, row in measured.items()
    for name, form in row['forms'].items()
  ]
  head = [
    'work',
    'form',
    'median',
    'ratio to the base (10 % to 90 %)',
    'compiling',
    'temporaries',
  ]
  libraries = {row['native'] for row in measured.values()}
  return (
    f'{tables.provenance(found)} The library: {"; ".join(sorted(libraries))}. '
    'Forms take turns in one process; a ratio is of one turn.\n\n'
    f'{tables.table(head, lines)}'
  )


def _line(case, name, form, base):
  ratio = 'the base'
  if name != base:
    low, high = form['ratio_low'], form['ratio_high']
    ratio = f'{form["ratio"]:.2f} ({low:.2f} to {high:.2f})'
  return [
    case,
    name,
    tables.seconds(form['median']),
    ratio,
    tables.seconds(form['compile_seconds']),
    tables.mebibytes(form['temp_bytes']),
  ]
