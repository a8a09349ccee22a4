"""Costs from what a profile wrote, and which of them a table shows."""

import json

from rnn_jax.experiments import costs
from rnn_jax.profiling import parts


def test_costs_are_read_by_the_names_that_a_profile_writes(tmp_path):
  names = (parts.FORWARD, parts.BACKWARD, parts.STEP)
  written = {
    'time': {'median': 0.5, 'compile_seconds': 2.0},
    'memory': {
      'kept_for_backward': 7,
      'programs': {name: {'total': n} for n, name in enumerate(names)},
    },
  }
  (tmp_path / 'profile.json').write_text(json.dumps(written))
  result = costs.of_profile(tmp_path)
  assert [result[f'{n}_bytes'] for n in ('forward', 'backward', 'step')] == [
    0,
    1,
    2,
  ]
  assert result['kept_bytes'] == 7
  assert (result['step_seconds'], result['compile_seconds']) == (0.5, 2.0)
  assert result.keys() <= {cost.key for cost in costs.COSTS}


def test_only_what_rows_have_is_shown():
  rows = [{'seconds': 1.0, 'step_bytes': None}, {'largest_batch': 3}]
  shown = [cost._asdict() for cost in costs.present(rows, True)]
  assert [cost['key'] for cost in shown] == ['seconds', 'largest_batch']
  assert costs.first(costs.MEMORY, shown) == 'peak_memory_bytes'
  assert costs.first(costs.TIME, shown) == 'seconds'


def test_times_of_several_machines_are_left_out():
  row = dict.fromkeys(costs.OF_MACHINE | {'parameters'}, 2.0)
  (shown,) = costs.present([row], False)
  assert shown.key == 'parameters'
