"""All cells at one number of weights on Tiny Shakespeare, by learning rate.

  python -m launch.experiments --grid=cells_text --workdir=runs/cells_text \\
      --set=data.path=PATH/input.txt

The model of configs/tiny_shakespeare.py with three layers of width 256, for 400
steps, with each cell at as many weights as SimpleRNN (_widths.py). BDH is norms
around a sum, in its own block. Its state forgets nothing: carried along, it
would keep pairs of characters of the whole text. All cells have the rates .003
and .001; three of them two higher ones, and five seeds at their best:
--only='qrnn/0.006|mamba2/0.003|simple_rnn/0.006' --seeds=0,1,2,3,4. Each run
takes about 3 minutes on 2 cores.
"""

from configs.experiments import _widths
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

STEPS = 400
RATES = (1e-3, 3e-3)
HIGHER = {cell: (6e-3, 1.2e-2) for cell in ('simple_rnn', 'qrnn', 'mamba2')}
SHARED = {
  'model.layers': 3,
  'model.unroll': 3,
  'model.width': 256,
  'model.mlp_width': 512,
  'model.dropout': 0.1,
  'data.segment_tokens': 8192,
  'optimizer.weight_decay': 0.1,
  'optimizer.ema_decay': 0.0,
  'train.steps': STEPS,
  'train.checkpoint_every': STEPS,
  'evaluate.every': STEPS,
}
HYBRID = {
  'model.cells': ('gated_deltanet', 'gated_deltanet', 'attention'),
  # Narrow, so that enough weights are left for the values.
  'cell.attention.head_width': 16,
  'cell.gated_deltanet.heads': 2,
  'cell.gated_deltanet.key_width': 16,
}
NORMED = {
  'model.block': 'normed',
  'model.norm': 'standard',
  'model.mlp_width': 0,
}


def get_grid():
  """Returns the grid."""
  models = {cell: _of_cell(cell) for cell in _widths.CELLS} | {
    'bdh-normed': {
      **_named('bdh'),
      **NORMED,
      'data.carry_state': False,
      'cell.neurons': 204,
    },
    'gated_deltanet-hybrid': HYBRID | {'cell.gated_deltanet.value_width': 193},
  }
  return grid.Grid(
    title='Cells at equal weights: Tiny Shakespeare',
    config='configs/tiny_shakespeare.py',
    variants={
      f'{name}/{rate:g}': SHARED | own | {'optimizer.learning_rate': rate}
      for name, own in models.items()
      for rate in (*RATES, *HIGHER.get(name, ()))
    },
    metrics=(('loss', 'lower', 'nats per character'),),
    axes=axes.Axes('cell', best='rate'),
    seeds=(0,),
  )


def _named(cell):
  return {'config': f'configs/tiny_shakespeare.py:{cell}'}


def _of_cell(cell):
  if cell == _widths.REFERENCE:
    return {'cell.value_width': 64}
  return _named(cell) | _widths.of(cell, _widths.TEXT)
