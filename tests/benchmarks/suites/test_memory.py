"""A step's memory is the compiler's, and a saving a share of the plain step."""

from benchmarks.suites import memory
from tests.benchmarks import made

SHORT = {'data.length': 64, 'cell.window': 16}


def test_a_transformer_s_step_is_counted_and_not_run():
  plain, small = (
    memory.step_memory(['chatgot', 'tiny', SHORT | overrides], 2)
    for overrides in ({}, {'optimizer.moments': 'int8', 'remat.layers': 1})
  )
  assert plain['weights'] == small['weights'] == 419_673
  assert plain['parameter_bytes'] == 4 * 419_673
  assert plain['optimizer_bytes'] > 8 * 419_673 > 3 * small['optimizer_bytes']
  assert small['total_bytes'] < plain['total_bytes']


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
