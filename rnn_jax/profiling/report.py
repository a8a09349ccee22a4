"""Writes a profile as text, Markdown, JSON and bars.

<workdir>/profile.md, profile.json, profile.png, next to the trace.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from rnn_jax import plots
from rnn_jax.profiling import parts
from rnn_jax.system import files

NAME = 'profile'
KERNELS = 10  # shown
MIB = 2**20


def write(profile: dict[str, Any], workdir: pathlib.Path) -> str:
  """Writes a profile (profile.py) in all forms. Returns its text."""
  text = markdown(profile)
  written = files.to_json(profile, indent=1) + '\n'
  files.write_whole(workdir / f'{NAME}.json', written)
  picture = f'![Memory and time]({NAME}.png)\n'
  files.write_whole(workdir / f'{NAME}.md', f'{text}\n{picture}')
  draw(profile, workdir / f'{NAME}.png')
  return text


def markdown(profile: dict[str, Any]) -> str:
  """Returns the tables of a profile, which are readable as text too."""
  subject = profile['subject']
  return '\n'.join(
    [
      '# Profile of a training step\n',
      f'{subject["rows"]} {subject["description"]}\n',
      '## Memory, MiB of each device\n',
      *_memory(profile['memory']),
      '\n## Programs, MiB by the compiler\n',
      *_programs(profile),
      *(_sent(profile['sent']) if profile['sent'] else ()),
      *(_ran(profile) if 'trace' in profile else ()),
      *(_kernels(profile['kernels']) if 'kernels' in profile else ()),
      '\n## The largest results of operations in the compiled program\n',
      'Several may share one buffer, one after another or updated in place.\n',
      *_buffers(profile['buffers']),
      '',
    ]
  )


def memory_bars(memory: dict[str, Any]) -> dict[str, int]:
  """Returns {label: bytes} of the parts of a step's memory."""
  step = memory['programs'][parts.STEP]
  bars = {
    **memory['arrays'],
    'kept for backward': memory['kept_for_backward'],
    'temporaries of the step': step['temporaries'],
    'whole step': step['total'],
  }
  if device := memory.get('device'):
    bars[f'peak by {device["source"]}'] = device['peak_bytes']
  return bars


def _memory(memory):
  rows = [[label, _mib(n)] for label, n in memory_bars(memory).items()]
  return table(('part', 'MiB'), rows)


def _programs(profile):
  rows = []
  for name, memory in profile['memory']['programs'].items():
    cost = profile['cost'][name]
    sizes = [_mib(n) for n in memory.values()]
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


def _sent(sent):
  rows = [
    [
      part['opcode'],
      '+'.join(part['axes']),
      str(part['runs']),
      f'{part["bytes"] / 1e6:,.3f}',
      f'{part["beside"] / part["bytes"]:.0%}' if part['bytes'] else '-',
      f'{part["traffic"] / 1e6:,.3f}',
      f'{part["flops"] / 1e9:,.3f}',
    ]
    for part in sent
  ]
  header = (
    'collective',
    'along',
    'times',
    'MB',
    'beside computation',
    'MB of memory meanwhile',
    'GFLOP meanwhile',
  )
  return ['\n## Sent by each device in a step\n', *table(header, rows)]


def _ran(profile):
  return [
    '\n## Time\n',
    *_time(profile),
    '\n## The slowest operations\n',
    *_operations(profile['trace']['operations']),
    '\n## The slowest modules\n',
    *_modules(profile['trace']['modules']),
  ]


def _kernels(kernels):
  spilled = [one for one in kernels if one['spilled']]
  most = sorted(kernels, key=lambda one: (-one['spilled'], -one['registers']))
  rows = [
    [
      *(str(one[key]) for key in ('registers', 'spilled', 'shared')),
      one['name'],
    ]
    for one in most[:KERNELS]
  ]
  header = ('registers', 'bytes spilled', 'bytes shared', 'kernel')
  return [
    f'\n## Kernels\n\n{len(kernels)} kernels that XLA made, of which '
    f'{len(spilled)} spill registers; of a thread, and of a block:\n',
    *table(header, rows),
    '\nThose of libraries, such as matmuls of cuBLAS, are not in the list.',
  ]


def _time(profile):
  time, busy = profile['time'], profile['trace']['busy_share']
  tokens = profile['subject']['rows'] * profile['subject']['length']
  traced = sum(time['seconds_with_trace']) / time['steps']
  return [
    f'{time["median"] * 1e3:.3g} ms per step (median of {time["steps"]}), '
    f'{tokens / time["median"]:,.0f} tokens/s; '
    f'{traced * 1e3:.3g} ms while traced.',
    f'The step was traced and compiled, or read from the cache of programs, in '
    f'{time["compile_seconds"]:.3g} s.',
    f'The device was busy for {busy:.1%} of the traced steps.',
    f'Trace, for TensorBoard and Perfetto: {profile["trace"]["file"]}',
  ]


def _operations(operations):
  rows = [[*_times(row), row['name'], row['module']] for row in operations]
  header = ('ms per step', 'times', 'share', 'operation', 'module')
  return [
    *table(header, rows),
    '\nFrom the start of an operation to its end; operations that run in '
    'parallel\neach count in full. Shares are of the sum over all operations.',
  ]


def _modules(modules):
  rows = [[*_times(row), row['name']] for row in modules]
  return table(('ms per step', 'times', 'share', 'module'), rows)


def _times(row):
  return [
    f'{row["seconds_a_step"] * 1e3:.3f}',
    f'{row["times_a_step"]:g}',
    f'{row["share"]:.1%}',
  ]


def _buffers(buffers):
  rows = [
    [_mib(row['bytes']), row['array'], row['operation'], row['module']]
    for row in buffers
  ]
  return table(('MiB', 'array', 'operation', 'module'), rows)


def _mib(number):
  return f'{number / MIB:,.2f}'


def _count(number):
  return '-' if number is None else f'{number / 1e9:,.3f}'


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  """Returns the lines of an aligned Markdown table, numbers to the right."""
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
  # A cell may be bold, or empty.
  return all(x.lstrip('*')[:1].isdigit() or x in ('-', '') for x in column)


def draw(profile: dict[str, Any], path: pathlib.Path) -> None:
  """Draws memory by its parts and, if steps ran, the slowest modules."""
  memory = memory_bars(profile['memory'])
  rows = profile.get('trace', {}).get('modules', ())
  modules = {row['name']: row['seconds_a_step'] * 1e3 for row in rows}
  count = max(len(memory), len(modules))
  size = 14 if modules else 7, 1.2 + 0.4 * count
  figure, ((left, *right),) = plots.panels(size, 1, 2 if modules else 1)
  sizes = {label: n / MIB for label, n in memory.items()}
  plots.bars(left, sizes, 'MiB of each device', plots.BLUE)
  title = 'ms per step, all operations of a module'
  for panel in right:
    plots.bars(panel, modules, title, plots.ORANGE)
  plots.save(figure, path)
