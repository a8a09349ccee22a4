"""The page on recall has each cell at its best rate, beside its state."""

from benchmarks.suites import mqar
from tests.benchmarks import made


def scored(case, accuracy, **values):
  scores = {'held_out': {'accuracy': accuracy}}
  return made.row(
    case, weights=1234, state_bytes=2048, steps=7, **scores, **values
  )


def test_a_cell_is_shown_at_its_best_rate(tmp_path):
  rows = [
    scored('gla: 256, 16 at 0.01', 0.25),
    scored('gla: 256, 16 at 0.003', 0.5),
    scored('gla: 64, 4 at 0.01', 1),
    scored('simple_rnn, untied: 256, 16 at 0.01', 0.125),
    made.failed('gla: 128, 8 at 0.01', 'killed by it'),
    scored('simple_rnn: 256, 16 at 0.01', 1),
  ]
  rows += [scored(f'{name}: 256, 16 at 0.01', 0.9) for name in mqar.SEEDS]
  text = made.section(tmp_path, 'mqar', rows)
  assert '| 256, 16 | 128, 8 | 64, 4 |' in text
  assert (
    '| gla | 1,234 | 2.0 KiB | 50.0 % (0.003 of 2) | - | 100.0 % (0.01 of 1) |'
    in text
  )
  assert '| simple_rnn, untied | 1,234 | 2.0 KiB | 12.5 % (0.01 of 1) |' in text
  assert 'gla: 128, 8 at 0.01: killed by it' in text
  assert '5 seeds: 92.0 ± 4.5 %, the lowest 90.0 %' in text
  assert '| simple_rnn, seed' not in text
  assert text.count('](plots/') == 1


def test_matrix_states_have_one_head_and_the_keys_of_simple_rnn():
  cases = {case.name: case for case in mqar.cases(quick=False)}
  of = {
    name: cases[f'{name}: 256, 16 at 0.01'].parameters for name in mqar.CELLS
  }
  assert of['kda']['overrides'] == mqar.MATRIX and not of['lstm']['overrides']
  few = {'steps': 3, 'length': 16, 'pairs': 2}
  small = {'model.width': 16, 'data.mqar.vocabulary': 64, 'cell.key_width': 8}
  given = of['kda'] | few
  values = mqar.learn(**given | {'overrides': given['overrides'] | small})
  assert values['steps'] == 3 and 'accuracy' in values['held_out']
  reads = values['state_bytes'] / 4 / 2  # of a layer
  assert reads >= 8 * values['size']
