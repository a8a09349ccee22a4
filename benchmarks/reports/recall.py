"""Answers right against distance, a table, a plot and what follows."""

from benchmarks import tables

TOLD = {
  'recall': 'Associative recall',
  'copying': 'Copying',
}
LEARNT = 0.9  # of the answers right


def render(found, plots):
  """Markdown of one machine's rows."""
  parts = [tables.provenance(found)]
  for source, told in TOLD.items():
    curves = curves_of(found, source)
    if curves:
      parts += [f'**{told}**: {_setting(curves)}', _table(curves)]
      parts += [_plot(curves, source, plots), _outcome(curves)]
  failed = (
    f'{name}: {tables.short(row)}'
    for name, row in found.items()
    if 'error' in row
  )
  return '\n\n'.join([*(part for part in parts if part), *failed])


def curves_of(found, source):
  """{model: {distance: row}} of the cases '<source> <distance>: <model>'."""
  curves = {}
  for name, row in found.items():
    what, _, model = name.partition(': ')
    if what.startswith(source + ' ') and 'held_out' in row:
      distance = int(what.removeprefix(source + ' '))
      curves.setdefault(model, {})[distance] = row
  return curves


def _rows(curves):
  return [row for curve in curves.values() for row in curve.values()]


def _distances(curves):
  return sorted({distance for curve in curves.values() for distance in curve})


def _setting(curves):
  chance = 100 * _rows(curves)[0]['chance']
  return (
    'the share of held-out answers right; a letter guessed is right in '
    f'{chance:.3g} % of cases.'
  )


def _table(curves):
  distances = _distances(curves)
  lines = [
    [
      model,
      *(f'{next(iter(curve.values()))[key]:,}' for key in ('weights', 'steps')),
      *(_cell(curve.get(distance)) for distance in distances),
    ]
    for model, curve in curves.items()
  ]
  head = ['model', 'weights', 'steps', *(f'distance {n}' for n in distances)]
  return tables.table(head, lines)


def _cell(row):
  if row is None:
    return '-'
  held_out = row['held_out']
  exact = f'{100 * held_out["exact"]:.1f} %'
  if abs(held_out['exact'] - held_out['accuracy']) < 1e-9:
    return exact  # an answer is one letter
  return f'{exact} ({100 * held_out["accuracy"]:.1f} % of letters)'


def _plot(curves, source, plots):
  if len(_distances(curves)) < 2:
    return ''
  series = {
    model: [(n, row['held_out']['exact']) for n, row in curve.items()]
    for model, curve in curves.items()
  }
  labels = 'distance, characters', f'{TOLD[source]}, share right'
  return plots.lines(source, series, labels, 'linear')


def _outcome(curves):
  """A sentence on each model: up to which distance it has learnt it."""
  lines = []
  for model, curve in curves.items():
    measured = sorted(curve)
    if not curve[measured[0]]['steps']:
      continue  # no model
    learnt = [n for n in measured if curve[n]['held_out']['exact'] >= LEARNT]
    missed = [n for n in measured if n not in learnt]
    if not learnt:
      told = f'{100 * LEARNT:.0f} % at no distance measured'
    else:
      told = f'{100 * LEARNT:.0f} % or more at {_listed(learnt)}'
    if learnt and missed:
      told += f', not at {_listed(missed)}'
    lines.append(f'* {model}: {told}.')
  return '\n'.join(lines)


def _listed(numbers):
  return ', '.join(map(str, numbers))
