"""Writes a profile as text, Markdown, JSON and bars.

<workdir>/profile.md, profile.json, profile.png, next to the trace.
"""

import pathlib
from typing import Any

from rnn_jax import plots
from rnn_jax import tables
from rnn_jax.profiling import kernel_times
from rnn_jax.profiling import parts
from rnn_jax.system import files

NAME = 'profile'
KERNELS = 10  # shown
MIB = 2**20
SIZES = 'arguments', 'temporaries', 'outputs', 'total'  # of a program


def write(profile: dict[str, Any], workdir: pathlib.Path) -> str:
  """Writes a profile (profile.py) in all forms. Returns its text."""
  text = markdown(profile)
  written = files.to_json(profile, indent=1) + '\n'
  files.write_whole(workdir / f'{NAME}.json', written)
  figure = f'![Memory and time]({NAME}.png)\n'
  files.write_whole(workdir / f'{NAME}.md', f'{text}\n{figure}')
  draw(profile, workdir / f'{NAME}.png')
  return text


def markdown(profile: dict[str, Any]) -> str:
  """Returns the tables of a profile, which are readable as text too."""
  workload = profile['workload']
  return '\n'.join(
    [
      '# Profile of a training step\n',
      f'{workload["rows"]} {workload["description"]}\n',
      '## Memory, MiB of each device\n',
      *_memory(profile['memory']),
      '\n## Programs, MiB by the compiler\n',
      *_programs(profile),
      *(_sent(profile['sent']) if profile['sent'] else ()),
      *(_ran(profile) if 'trace' in profile else ()),
      *(_predicted(profile) if 'predicted' in profile else ()),
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


def _scaled(row, unit, *keys):
  """Returns a row with some of its numbers in another unit."""
  return row | {k: None if row[k] is None else row[k] / unit for k in keys}


def _memory(memory):
  rows = [
    {'part': label, 'MiB': n / MIB} for label, n in memory_bars(memory).items()
  ]
  return tables.of(rows, ('part', 'MiB:,.2f'))


def _programs(profile):
  rows = [
    {'program': name, **_scaled(memory, MIB, *memory)}
    | _scaled(profile['cost'][name], 1e9, 'flops', 'bytes')
    for name, memory in profile['memory']['programs'].items()
  ]
  sizes = [f'{x}:,.2f' for x in SIZES]
  costs = 'GFLOP=flops:,.3f', 'GB accessed=bytes:,.3f'
  return [
    *tables.of(rows, ('program', *sizes, *costs)),
    '\nXLA counts the body of a loop once: flops and bytes are a floor.',
  ]


def _sent(sent):
  rows = [
    _scaled(part, 1e6, 'bytes', 'traffic')
    | {
      'along': '+'.join(part['axes']),
      'share': part['beside'] / part['bytes'] if part['bytes'] else None,
      'flops': part['flops'] / 1e9,
    }
    for part in sent
  ]
  columns = (
    'collective=opcode',
    'along',
    'times=runs',
    'MB=bytes:,.3f',
    'during computation=share:.0%',
    'MB of memory meanwhile=traffic:,.3f',
    'GFLOP meanwhile=flops:,.3f',
  )
  return ['\n## Sent by each device in a step\n', *tables.of(rows, columns)]


def _ran(profile):
  trace = profile['trace']
  names = 'operation=name', 'module'
  return [
    '\n## Time\n',
    *_time(profile),
    '\n## The slowest operations\n',
    *_times(trace['operations'], *names),
    '\nFrom the start of an operation to its end; operations that run in '
    'parallel\neach count in full. Shares are of the sum over all operations.',
    '\n## The slowest modules\n',
    *_times(trace['modules'], 'module=name'),
  ]


def _kernels(kernels):
  spilled = [one for one in kernels if one['spilled']]
  most = sorted(kernels, key=lambda one: (-one['spilled'], -one['registers']))
  columns = 'registers', 'bytes spilled=spilled', 'bytes shared=shared'
  return [
    f'\n## Kernels\n\n{len(kernels)} kernels that XLA made, of which '
    f'{len(spilled)} spill registers; of a thread, and of a block:\n',
    *tables.of(most[:KERNELS], (*columns, 'kernel=name')),
    '\nThose of libraries, such as matmuls of cuBLAS, are not in the list.',
  ]


def _predicted(profile):
  """Returns the kernels' times for a GPU that isn't attached."""
  predicted, work = profile['predicted'], profile['workload']
  median, largest = predicted['error']
  others = work['device']['count'] > 1
  parts = predicted['parts'] | {'all': predicted}
  order = (*kernel_times.PARTS, 'all')
  rows = [{'part': name, **parts[name]} for name in order if name in parts]
  return [
    f'\n## Time of the kernels on {work["device"]["kind"]}: predicted\n',
    *_kernel_times(rows, predicted, 'part'),
    f'\nPredicted, not measured: {predicted["tokens_per_second"]:,.0f} tokens/s'
    f' of a device, MFU {predicted["mfu"]:.0%}, MBU {predicted["mbu"]:.0%}.',
    f'Predictions of measured programs were off by {median:.0%} (median), '
    f'{largest:.0%} at most.' + ' Sending is left out.' * others,
    '\n## The slowest kernels: predicted\n',
    *_kernel_times(predicted['slowest'], predicted, 'part', 'module'),
  ]


def _kernel_times(rows, predicted, *names):
  rows = [
    _scaled(row, 1e-3, 'limit_seconds', 'seconds')
    | {'bytes': row['bytes'] / 1e9, 'products': row['products'] / 1e12}
    | {'share': row['seconds'] / predicted['seconds']}
    for row in rows
  ]
  columns = (
    'launches',
    'GB=bytes:,.2f',
    'TFLOP=products:,.2f',
    'ms at the limit=limit_seconds:,.2f',
    'ms predicted=seconds:,.2f',
    'share:.1%',
  )
  return tables.of(rows, (names[0], *columns, *names[1:]))


def _time(profile):
  time, busy = profile['time'], profile['trace']['busy_share']
  tokens = profile['workload']['rows'] * profile['workload']['length']
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


def _times(rows, *names):
  columns = (
    'ms per step=seconds_per_step:.3f',
    'times=times_per_step:g',
    'share:.1%',
  )
  rows = [_scaled(row, 1e-3, 'seconds_per_step') for row in rows]
  return tables.of(rows, (*columns, *names))


def _buffers(buffers):
  rows = [_scaled(row, MIB, 'bytes') for row in buffers]
  return tables.of(rows, ('MiB=bytes:,.2f', 'array', 'operation', 'module'))


def draw(profile: dict[str, Any], path: pathlib.Path) -> None:
  """Draws memory by its parts and, if steps ran, the slowest modules."""
  memory = memory_bars(profile['memory'])
  rows = profile.get('trace', {}).get('modules', ())
  modules = {row['name']: row['seconds_per_step'] * 1e3 for row in rows}
  count = max(len(memory), len(modules))
  size = 14 if modules else 7, 1.2 + 0.4 * count
  figure, ((left, *right),) = plots.panels(size, 1, 2 if modules else 1)
  sizes = {label: n / MIB for label, n in memory.items()}
  plots.bars(left, sizes, 'MiB of each device', plots.BLUE)
  title = 'ms per step, all operations of a module'
  for panel in right:
    plots.bars(panel, modules, title, plots.ORANGE)
  plots.save(figure, path)
