"""Parallel forms on eight devices: the same numbers, less on each of them.

Virtual devices of a CPU. A small model of each cell takes five steps on one
device and on a mesh; what devices keep and what they tell each other is read
from the program. No time is taken: virtual devices share the cores.
"""

from benchmarks import cases as cases_lib

DEVICES = 8
FLAGS = f'--xla_force_host_platform_device_count={DEVICES}'
FORMS = {
  'data 8': {'data': 8},
  'data 8, int8 gradients': {'data': 8, 'compression': 'int8'},
  'fsdp 8, ZeRO 1': {'data': 1, 'fsdp': 8, 'zero': 1},
  'fsdp 8, ZeRO 2': {'data': 1, 'fsdp': 8, 'zero': 2},
  'fsdp 8, ZeRO 3': {'data': 1, 'fsdp': 8},
  'data 2, tensor 4': {'data': 2, 'tensor': 4},
  'data 4, pipe 2': {'data': 4, 'pipe': 2, 'micro_batches': 4},
  'data 4, pipe 2, 1F1B': {
    'data': 4,
    'pipe': 2,
    'micro_batches': 4,
    'schedule': '1f1b',
  },
  'sequence 8': {'data': 1, 'sequence': 8},
  'data 2, fsdp 2, tensor 2': {'data': 2, 'fsdp': 2, 'tensor': 2},
  'data 2, fsdp 2, pipe 2': {
    'data': 2,
    'fsdp': 2,
    'pipe': 2,
    'micro_batches': 4,
  },
  'data 2, sequence 2, tensor 2': {'data': 2, 'sequence': 2, 'tensor': 2},
  'fsdp 2, pipe 2, sequence 2': {
    'data': 1,
    'fsdp': 2,
    'pipe': 2,
    'sequence': 2,
  },
}
# The LSTM has no heads, and reads a row step by step.
LACKING = {'lstm': {'tensor', 'sequence'}}
QUICK = ('data 8', 'fsdp 8, ZeRO 3')


def cases(quick):
  """Each form, for each cell that has it."""
  cells = ('simple_rnn',) if quick else ('simple_rnn', 'lstm', 'attention')
  return [
    cases_lib.Case(
      f'{cell}: {form}',
      'meshes.compare',
      {'cell': cell, 'mesh': mesh},
      1,
      {'XLA_FLAGS': FLAGS},
    )
    for cell in cells
    for form, mesh in FORMS.items()
    if not LACKING.get(cell, set()) & {*mesh}
    if not quick or form in QUICK
  ]
