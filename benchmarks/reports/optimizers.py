"""Optimizers: the better of each one's rates in a table, and its curve."""

from benchmarks import tables

REFERENCE = 'adamw'
HEADS = (
  'optimizer',
  'rate',
  'held-out loss',
  'other rates',
  'bytes of state',
  'state / parameters',
  'seconds a step / AdamW',
)


def render(found, plots):
  """Markdown of one machine's rows."""
  parts = [tables.provenance(found)]
  by_name = grouped(found)
  best = {name: min(rows, key=_loss) for name, rows in by_name.items()}
  if best:
    steps = next(iter(best.values()))['steps']
    reference = by_name.get(REFERENCE)
    lines = [
      _line(row, by_name[name], reference)
      for name, row in sorted(best.items(), key=lambda item: _loss(item[1]))
    ]
    parts += [f'Losses in nats a byte behind {steps} steps, the best first.']
    parts += [tables.table([*HEADS], lines), _plot(best, plots)]
  parts += [
    f'{name}: {tables.short(row)}'
    for name, row in found.items()
    if 'error' in row
  ]
  parts.append(tables.unmeasured('optimizers', found))
  return '\n\n'.join(part for part in parts if part)


def grouped(found):
  """{optimizer: rows of its rates} of what was measured."""
  by_name = {}
  for case, row in found.items():
    if 'held_out' in row:
      by_name.setdefault(case.partition(',')[0], []).append(row)
  return by_name


def seconds(rows):
  """Of the program that several rates share: the least of the medians."""
  return min(row['median'] for row in rows)


def _line(row, rows, reference):
  others = [
    f'{_rate(other):g}: {_loss(other):.3f}'
    for other in rows
    if other is not row
  ]
  times = tables.times(seconds(rows) / seconds(reference)) if reference else '-'
  return [
    f'`{row["case"].partition(",")[0]}`',
    f'{_rate(row):g}',
    f'{_loss(row):.3f}',
    ', '.join(others) or '-',
    f'{row["state_bytes"]:,}',
    f'{row["state_bytes"] / row["parameter_bytes"]:.2f}',
    times,
  ]


def _plot(best, plots):
  series = {name: row['losses'] for name, row in best.items()}
  labels = 'step', 'training loss, nats a byte'
  return plots.losses('losses', series, labels)


def _loss(row):
  return row['held_out']['loss']


def _rate(row):
  return row['parameters']['changes']['learning_rate']
