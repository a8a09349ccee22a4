"""Predicted scaling: a table and a picture for each model, weak and strong."""

from benchmarks import tables

GIB = 2**30


def render(found, plots):
  """Markdown of one machine's rows."""
  parts = [tables.provenance(found)]
  for name, rows in _curves(found).items():
    parts += [f'**{name} scaling**', _table(rows)]
    if series := _series(rows):
      file = name.replace(', ', '_').lower()
      labels = ('devices', 'scaling efficiency, nothing overlaps')
      parts.append(plots.lines(file, series, labels, 'linear'))
  return '\n\n'.join(parts)


def _curves(found):
  """{'gpt2, weak': {devices: row}}."""
  curves = {}
  for case, row in found.items():
    name, _, count = case.rpartition(': ')
    curves.setdefault(name, {})[int(count)] = row
  return curves


def _series(rows):
  made = {}
  for count, row in sorted(rows.items()):
    for device, plan in row.get('plans', {}).items():
      made.setdefault(device, []).append((count, plan['scaling_efficiency'][0]))
  return made


def _table(rows):
  lines, names = [], {}
  for count, row in sorted(rows.items()):
    if 'plans' not in row:
      lines.append([f'{count:,}', tables.short(row)])
      continue
    names = names or dict.fromkeys(row['plans'])
    any_plan = next(iter(row['plans'].values()))
    size = any_plan['memory']['total'] / GIB
    told = [f'{count:,}', f'{any_plan["rows"]:,}', f'{size:.3g} GiB']
    lines.append([*told, *map(_cell, row['plans'].values())])
  heads = ['devices', 'rows', 'memory a device', *names]
  return tables.table(
    heads, [line + ['-'] * (len(heads) - len(line)) for line in lines]
  )


def _cell(plan):
  """A step's time and efficiency, with nothing and with all overlapped."""
  worst, best = (f'{share:.1%}' for share in plan['scaling_efficiency'])
  room = '' if plan['memory']['fits'] else ', does not fit'
  return f'{tables.seconds(plan["seconds"]["step"])}, {worst} to {best}{room}'
