"""A profile for a reader: text, Markdown, JSON and bars.

<workdir>/profile.md, profile.json, profile.png; the trace lies beside them.
"""

import json
import pathlib
from typing import Any

import matplotlib

matplotlib.use('Agg')

from matplotlib import pyplot  # noqa: E402

from rnn_jax import files  # noqa: E402
from rnn_jax.profiling import parts  # noqa: E402

NAME = 'profile'
DPI = 140
BLUE, ORANGE = '#0072B2', '#D55E00'
MIB = 2**20


def write(profile: dict[str, Any], workdir: pathlib.Path) -> str:
  """Writes a profile (profile.py) in all forms. Returns its text."""
  text = markdown(profile)
  written = json.dumps(profile, indent=1) + '\n'
  files.write_whole(workdir / f'{NAME}.json', written)
  picture = f'![Memory and time]({NAME}.png)\n'
  files.write_whole(workdir / f'{NAME}.md', f'{text}\n{picture}')
  draw(profile, workdir / f'{NAME}.png')
  return text


def markdown(profile: dict[str, Any]) -> str:
  """Returns the tables of a profile, which read as text as well."""
  subject = profile['subject']
  return '\n'.join(
    [
      '# Profile of a training step\n',
      f'{subject["rows"]} {subject["description"]}\n',
      '## Memory, MiB of each device\n',
      *_memory(profile['memory']),
      '\n## Programs, MiB by the compiler\n',
      *_programs(profile),
      '\n## Time\n',
      *_time(profile),
      '\n## The slowest operations\n',
      *_operations(profile['trace']['operations']),
      '\n## The slowest modules\n',
      *_modules(profile['trace']['modules']),
      '\n## The largest results of operations in the compiled program\n',
      'Several may lie in one buffer, one after another or updated in place.\n',
      *_buffers(profile['buffers']),
      '',
    ]
  )


def memory_bars(memory: dict[str, Any]) -> dict[str, int]:
  """Returns {label: bytes} of what a step's memory is made of."""
  step = memory['programs'][parts.STEP]
  return {
    **memory['arrays'],
    'kept for backward': memory['kept_for_backward'],
    'temporaries of the step': step['temporaries'],
    'whole step': step['total'],
    f'peak by {memory["device"]["source"]}': memory['device']['peak_bytes'],
  }


def _memory(memory):
  rows = [[label, _mib(n)] for label, n in memory_bars(memory).items()]
  return table(('part', 'MiB'), rows)


def _programs(profile):
  rows = []
  for name, found in profile['memory']['programs'].items():
    cost = profile['cost'][name]
    sizes = [_mib(n) for n in found.values()]
    rows.append([name, *sizes, *(_count(n) for n in cost.values())])
  header = (
    'program',
    'arguments',
    'temporaries',
    'outputs',
    'total',
    'GFLOP',
    'GB accessed',
  )
  return [
    *table(header, rows),
    '\nXLA counts the body of a loop once: flops and bytes are a floor.',
  ]


def _time(profile):
  time, busy = profile['time'], profile['trace']['busy_share']
  tokens = profile['subject']['rows'] * profile['subject']['length']
  traced = sum(time['seconds_with_trace']) / time['steps']
  return [
    f'{time["median"] * 1e3:.3g} ms a step (median of {time["steps"]}), '
    f'{tokens / time["median"]:,.0f} tokens/s; '
    f'{traced * 1e3:.3g} ms while traced.',
    f'The step was traced and compiled in {time["compile_seconds"]:.3g} s, or '
    'found in the cache of programs.',
    f'The device was busy for {busy:.1%} of the traced steps.',
    f'Trace, for TensorBoard and Perfetto: {profile["trace"]["file"]}',
  ]


def _operations(found):
  rows = [[*_times(row), row['name'], row['module']] for row in found]
  header = ('ms a step', 'times', 'share', 'operation', 'module')
  return [
    *table(header, rows),
    '\nFrom the start of an operation to its end; where several run side by '
    'side,\nthe time of each counts in full. Shares are of the sum over all '
    'operations.',
  ]


def _modules(found):
  rows = [[*_times(row), row['name']] for row in found]
  return table(('ms a step', 'times', 'share', 'module'), rows)


def _times(row):
  return [
    f'{row["seconds_a_step"] * 1e3:.3f}',
    f'{row["times_a_step"]:g}',
    f'{row["share"]:.1%}',
  ]


def _buffers(found):
  rows = [
    [_mib(row['bytes']), row['array'], row['operation'], row['module']]
    for row in found
  ]
  return table(('MiB', 'array', 'operation', 'module'), rows)


def _mib(number):
  return f'{number / MIB:,.2f}'


def _count(number):
  return '-' if number is None else f'{number / 1e9:,.3f}'


def table(header, rows):
  """Lines of a Markdown table whose columns are aligned; numbers right.

  `rows` are lists of texts.
  """
  cells = [header, *rows]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  right = [_is_number(column) for column in zip(*rows, strict=True)]
  right = right or [False] * len(header)

  def line(row):
    padded = (
      f'{x:>{w}}' if r else f'{x:<{w}}'
      for x, w, r in zip(row, widths, right, strict=True)
    )
    return f'| {" | ".join(padded)} |'

  rule = ['-' * (w - r) + ':' * r for w, r in zip(widths, right, strict=True)]
  return [line(header), line(rule), *map(line, rows)]


def _is_number(column):
  return all(x[:1].isdigit() or x == '-' for x in column)


def draw(profile: dict[str, Any], path: pathlib.Path) -> None:
  """Draws memory by its parts, and the time of the slowest modules."""
  memory = memory_bars(profile['memory'])
  modules = {
    row['name']: row['seconds_a_step'] * 1e3
    for row in profile['trace']['modules']
  }
  bars = max(len(memory), len(modules))
  figure, panels = pyplot.subplots(
    1, 2, figsize=(14, 1.2 + 0.4 * bars), layout='constrained'
  )
  sizes = {label: n / MIB for label, n in memory.items()}
  _bars(panels[0], sizes, 'MiB of each device', BLUE)
  _bars(panels[1], modules, 'ms a step, all operations of a module', ORANGE)
  figure.savefig(path, dpi=DPI, metadata={'Software': None})
  pyplot.close(figure)


def _bars(axes, values, label, color):
  axes.barh(range(len(values)), values.values(), 0.62, color=color, alpha=0.75)
  axes.set_yticks(range(len(values)), values.keys(), fontsize=8)
  axes.invert_yaxis()
  axes.set_xlabel(label)
  axes.bar_label(axes.containers[0], fmt='{:.4g}', padding=4, fontsize=8)
  axes.margins(x=0.15)
  axes.grid(alpha=0.3, axis='x')
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
