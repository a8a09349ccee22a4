"""A step's memory is the compiler's, and a saving a share of the plain step."""

from benchmarks.suites import memory
from tests.benchmarks import made

SMALL = {
  'model.layers': 1,
  'data.length': 16,
  'cell.window': 8,
  'optimizer.moments': 'int8',
}


def test_a_transformer_s_step_is_counted_and_not_run():
  values = memory.step_memory(['chatgot', 'tiny', SMALL], 2)
  assert values['parameter_bytes'] == 4 * values['weights'] == 4 * 221_401
  # Two moments of 8 bits, their scales, and what stays in 32.
  assert 2 < values['optimizer_bytes'] / values['weights'] < 3
  assert values['total_bytes'] > values['argument_bytes'] > 6 * 221_401


def test_what_techniques_save_is_a_share_of_the_plain_step(tmp_path):
  def measured(name, mebibytes):
    keys = ('optimizer', 'argument', 'temp', 'total')
    sizes = {f'{key}_bytes': mebibytes * 2**20 for key in keys}
    return made.row(f'gpt2: {name}', **sizes)

  rows = [
    measured('plain, whole', 1000),
    measured('8-bit, checkpoints, whole', 250),
    measured('plain', 900),
    measured('8-bit', 890),
    measured('checkpoints', 300),
    measured('8-bit, checkpoints', 200),
    made.failed('gpt2: flash', 'killed by it'),
  ]
  text = made.section(tmp_path, 'memory', rows)
  assert '| plain | 900 MiB | 900 MiB | 900 MiB | 900 MiB | 10.0% |' in text
  assert '| flash | killed by it | - | - | - | - |' in text
  assert 'save 78.1 % of the gpt2 size: **confirmed**, 75.0% here' in text
  assert '80.0% with the loss in blocks too.' in text
  assert 'One at a time, 8-bit: 11.0%, checkpoints: 70.0%.' in text
  rows[1] = measured('8-bit, checkpoints, whole', 10)  # saves too much
  assert '**corrected**, 99.0% here' in made.section(tmp_path, 'memory', rows)
