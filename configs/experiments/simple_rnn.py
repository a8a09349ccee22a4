"""SimpleRNN, one change at a time, at equal weights on Tiny Shakespeare.

  python -m launch.experiments --grid=simple_rnn --workdir=runs/heart \\
      --set=data.path=PATH/input.txt

The model of cells_text.py. 'improved' is its SimpleRNN; the next ones are the
steps from it to the preset 'coupled', which is then changed in one place each.
All have as many weights as 'improved': where keys are shared, values are wider.
Each run takes about 3 minutes on 2 cores.
"""

from configs.experiments import cells_text
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

CHANNELS = 900  # of a layer's projection and output, per channel of x
OFF = {  # what 'coupled' adds to 'improved'
  'cell.groups': 4,
  'cell.input_gate': False,
  'cell.skip': False,
  'cell.taps_bias': False,
  'cell.even_taps': False,
}
STEPS = {
  'even_taps': 'cell.even_taps',
  'and_a_skip': 'cell.skip',
  'and_an_input_gate': 'cell.input_gate',
}
CHANGES = {
  'coupled': {},
  'one_bias_of_all_gates': {'cell.gate_bias': 1.0, 'cell.gate_spread': 0.0},
  'gates_spread_by_3': {'cell.gate_spread': 3.0},
  'one_gate': {'cell.decay': 'head', 'cell.gate_spread': 0.0},
  'two_groups': {'cell.groups': 2},
  '8_heads': {'cell.heads': 8},
  '32_keys': {'cell.key_width': 32},
  '64_keys': {'cell.key_width': 64},
  'no_skip': {'cell.skip': False},
  'no_input_gate': {'cell.input_gate': False},
  'no_bias_of_taps': {'cell.taps_bias': False},
  'taps_near_the_identity': {'cell.even_taps': False},
}
RATES = 3e-3, 6e-3


def get_grid():
  """Returns the grid."""
  steps, changed = {'improved': {'cell.value_width': 64}}, dict(OFF)
  for name, key in STEPS.items():
    changed[key] = True
    steps[name] = _coupled(changed)
  models = steps | {name: _coupled(own) for name, own in CHANGES.items()}
  return grid.Grid(
    title='SimpleRNN, one change at a time',
    config='configs/tiny_shakespeare.py',
    variants={
      f'{name}/{rate:g}': {
        **cells_text.SHARED,
        **own,
        'optimizer.learning_rate': rate,
      }
      for name, own in models.items()
      for rate in RATES
    },
    metrics=(('loss', 'lower', 'nats per character'),),
    axes=axes.Axes('change', best='rate'),
    seeds=(0,),
  )


def _coupled(changed):
  """The preset with some options, at the width that has as many weights."""
  options = {
    'cell.groups': 1,
    'cell.heads': 4,
    'cell.key_width': 16,
    'cell.decay': 'key',
  } | changed
  keys = options['cell.key_width']
  gates = keys if options['cell.decay'] == 'key' else 1
  values = CHANNELS - options['cell.groups'] * (2 * keys + gates)
  return options | {
    'cell.preset': 'coupled',
    'cell.value_width': values // (3 * options['cell.heads']),
  }
