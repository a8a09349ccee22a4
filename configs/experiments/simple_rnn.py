"""SimpleRNN, one change at a time, at equal weights on Tiny Shakespeare.

  python -m launch.experiments --grid=simple_rnn --workdir=runs/simple_rnn \\
      --set=data.path=PATH/input.txt

The model of cells_text.py. 'improved' is its SimpleRNN; the next ones are the
steps from it to the preset 'coupled', whose gates begin at other biases in
GATES; CHANGES are made to the one whose gates all begin alike, and those that
helped are made TOGETHER. All have as many weights as 'improved': what keys or
the MLP lack, values have. Each run takes about 7 minutes on a core. Five seeds
of what leads: --only='^half_mlp/0.003' --seeds=0,1,2,3,4.
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
ALIKE = {'cell.gate_bias': 1.0, 'cell.gate_spread': 0.0}
GATES = {
  'coupled': {},
  'one_bias_of_all_gates': ALIKE,
  'gates_0_to_2': {'cell.gate_bias': 1.0, 'cell.gate_spread': 1.0},
  'gates_at_0': {'cell.gate_bias': 0.0, 'cell.gate_spread': 0.0},
  'gates_at_2': {'cell.gate_bias': 2.0, 'cell.gate_spread': 0.0},
}
CHANGES = {
  'one_gate': {'cell.decay': 'head'},
  'two_groups': {'cell.groups': 2},
  'four_groups': {'cell.groups': 4},
  'one_head': {'cell.heads': 1},
  '8_heads': {'cell.heads': 8},
  '32_keys': {'cell.key_width': 32},
  '64_keys': {'cell.key_width': 64},
  '2_taps': {'cell.convolution': 2},
  '3_taps': {'cell.convolution': 3},
  '8_taps': {'cell.convolution': 8},
  'no_skip': {'cell.skip': False},
  'no_input_gate': {'cell.input_gate': False},
  'no_bias_of_taps': {'cell.taps_bias': False},
  'taps_near_the_identity': {'cell.even_taps': False},
  'half_mlp': {'model.mlp_width': 256},
  'quarter_mlp': {'model.mlp_width': 128},
  'no_mlp': {'model.mlp_width': 0},
  'channel_mix': {'model.mlp': 'channel_mix', 'model.mlp_width': 768},
  'small_embedding': {'model.embedding_scale': 0.3},
  'small_branches': {'model.branch_scale': 0.3},
  'small_kernels': {'model.kernel_scale': 0.02},
  'embedding_norm': {'model.embedding_norm': True},
}
TOGETHER = {
  'half_mlp-small_branches-gates_0_to_2': CHANGES['half_mlp']
  | CHANGES['small_branches']
  | GATES['gates_0_to_2'],
  **{
    f'half_mlp-{name}': ALIKE | CHANGES['half_mlp'] | CHANGES[name]
    for name in (
      *('two_groups', 'four_groups', '32_keys', '3_taps', '8_heads'),
      'embedding_norm',
    )
  },
  'quarter_mlp-two_groups': ALIKE
  | CHANGES['quarter_mlp']
  | CHANGES['two_groups'],
}
OTHERS = {  # with half the MLP
  'mamba2-half_mlp': ('mamba2', {'cell.value_width': 136}),
  'mamba2-half_mlp-two_groups': (
    'mamba2',
    {'cell.value_width': 133, 'cell.groups': 2},
  ),
  'qrnn-half_mlp': ('qrnn', {'cell.state_width': 239}),
}
RATES = 3e-3, 6e-3


def get_grid():
  """Returns the grid."""
  steps, changed = {'improved': {'cell.value_width': 64}}, dict(OFF)
  for name, key in STEPS.items():
    changed[key] = True
    steps[name] = _coupled(changed)
  changes = GATES | {name: ALIKE | own for name, own in CHANGES.items()}
  changes |= TOGETHER
  models = steps | {name: _coupled(own) for name, own in changes.items()}
  for name, (cell, own) in OTHERS.items():
    models[name] = {
      'config': f'configs/tiny_shakespeare.py:{cell}',
      'model.mlp_width': 256,
      **own,
    }
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
    'model.mlp_width': cells_text.SHARED['model.mlp_width'],
    'model.mlp': 'swiglu',
  } | changed
  keys = options['cell.key_width']
  gates = keys if options['cell.decay'] == 'key' else 1
  values = CHANNELS - options['cell.groups'] * (2 * keys + gates)
  if options['model.mlp'] == 'swiglu':  # of three matrices
    lacking = cells_text.SHARED['model.mlp_width'] - options['model.mlp_width']
    values += 3 * lacking
  return options | {
    'cell.preset': 'coupled',
    'cell.value_width': values // (3 * options['cell.heads']),
  }
