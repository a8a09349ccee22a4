"""Layers of LSTM and GRU, ours beside PyTorch's."""

from benchmarks import tables
from benchmarks.suites import recurrent_layers as suite


def render(found, plots):
  """Markdown of one machine's rows; times are medians."""
  del plots
  parts = [
    tables.provenance(found),
    _table(found, 'training', suite.TRAINING, suite.IMPLS),
    _table(found, 'stepping', suite.STEPPING, ('auto',)),
    tables.unmeasured('recurrent_layers', found),
  ]
  return '\n\n'.join(part for part in parts if part)


def _table(found, what, shapes, impls):
  """A line for each cell and shape; ours with PyTorch's time over ours."""
  head = [f'{what}, (B, L, D)', 'PyTorch']
  for impl in impls:
    head += [f"ours, '{impl}'", 'speed']
  lines = []
  for cell in suite.CELLS:
    for shape in shapes:
      label = f'{cell}, {"x".join(map(str, shape))}'
      theirs = tables.good(found, f'{what}: {label}, PyTorch')
      line = [label, _time(theirs)]
      for impl in impls:
        ours = tables.good(found, f'{what}: {label}, {impl}')
        line += [_time(ours), _speed(ours, theirs)]
      lines.append(line)
  return tables.table(head, lines)


def _time(row):
  """Of both passes, or of one step."""
  if not row:
    return '-'
  return tables.seconds(row.get('seconds_per_step', row['median']))


def _speed(ours, theirs):
  both = ours and theirs
  return tables.times(theirs['median'] / ours['median']) if both else '-'
