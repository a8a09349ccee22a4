"""Gradients against delay: octaves in a table, all delays in a plot."""

from benchmarks import tables
from rnn_jax.inspection import curves as curves_lib


def render(found, plots):
  """Markdown of one machine's rows."""
  curves = {
    name: curves_lib.octaves(row['norms'])
    for name, row in found.items()
    if 'norms' in row
  }
  parts = [tables.provenance(found)]
  if curves:
    series = {name: [*enumerate(found[name]['norms'])][1:] for name in curves}
    labels = 'T - t, steps', '|d loss_T / d x_t|'
    parts += [_table(curves, found), plots.lines('delay', series, labels)]
    parts += ['\n'.join(f'* {line}' for line in outcome(curves))]
  failed = (
    f'{name}: {tables.short(row)}'
    for name, row in found.items()
    if 'error' in row
  )
  return '\n\n'.join([*parts, *failed])


def _table(curves, found):
  delays = sorted({delay for curve in curves.values() for delay in curve})
  lines = [
    [
      name,
      _loss(found[name]),
      *(f'{curve[n]:.1e}' if n in curve else '-' for n in delays),
    ]
    for name, curve in curves.items()
  ]
  head = ['model', 'nats a byte', *(f'from {delay}' for delay in delays)]
  return tables.table(head, lines)


def _loss(row):
  return f'{row["held_out"]["loss"]:.3f}' if 'held_out' in row else '-'


def outcome(curves):
  """Sentences: how far each one falls, and how two of a kind compare."""
  for name, curve in curves.items():
    first, last = min(curve), max(curve)
    told = f'{name}: over delays of {last} and more the gradient is '
    if curve[last]:
      ratio = curve[first] / curve[last]
      yield f'{told}1/{ratio:,.3g} of that at a delay of {first}.'
    else:
      yield f'{told}0 in float32.'
  for kind in ('initial', 'trained'):
    ours, simple = (
      curves.get(f'{model}, {kind}')
      for model in ('SimpleRNN', 'SimpleRNN, simple')
    )
    if ours and simple:
      last = max(ours)
      yield _compared(kind, last, ours[last], simple[last])


def _compared(kind, delay, ours, simple):
  if not simple:
    return f"{kind}: nothing is left of the simple preset's there."
  return (
    f"{kind}: over delays of {delay} and more the improved preset's gradient "
    f"is {ours / simple:.3g} times the simple preset's."
  )
