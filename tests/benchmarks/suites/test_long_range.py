"""The page on long range has each task's share beside the state's bytes."""

from benchmarks.suites import long_range
from tests.benchmarks import made


def scored(case, accuracy, longer=None, **values):
  scores = {'held_out': {'accuracy': accuracy}}
  if longer is not None:
    scores['test'] = {'accuracy': longer}
  return made.row(case, weights=1234, steps=7, **scores, **values)


def test_shares_stand_beside_the_state(tmp_path):
  rows = [
    scored('parity: lstm', 1, 0.75, state_bytes=2048),
    scored('digits: lstm', 0.25, state_bytes=2048),
    scored('s5: gla', 0.125, 0.0625, state_bytes=512),
    made.failed('s5: lstm', 'killed by it'),
  ]
  text = made.section(tmp_path, 'long_range', rows)
  lstm = '| lstm | 1,234 | 2.0 KiB | 100.0 % | 75.0 % | - | - | 25.0 % | - |'
  assert lstm in text
  assert '| gla | 1,234 | 0.5 KiB | - | - | 12.5 % | 6.2 % | - | - |' in text
  assert 's5: lstm: killed by it' in text
  assert text.count('](plots/') == 1


def test_a_row_has_what_was_learned_and_the_state():
  cases = {case.name: case for case in long_range.cases(quick=True)}
  given = cases['parity: gated_deltanet, beta to 2'].parameters
  assert given['overrides']['cell.max_beta'] == 2
  values = long_range.learn(**given | {'cell': 'gru', 'overrides': QUICK})
  assert (
    values['steps'] == 3 and values['state_bytes'] == 4 * 2 * values['size']
  )
  assert {*values['held_out']} >= {'accuracy', 'exact'} <= {*values['test']}


QUICK = {'data.batch_size': 2, 'model.width': 16}
