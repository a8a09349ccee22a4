"""Multi-query associative recall at its published sizes, for every cell.

  python -m launch.experiments --grid=mqar --workdir=runs/mqar

Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language
Models", 2023: 8,192 symbols; 64, 128 or 256 of them in a text, with 4, 8 or 16
pairs to remember; two layers. The model is that of configs/long_range.py:mqar,
with each cell at as many weights as SimpleRNN (_widths.py); a cell whose state
is a matrix has SimpleRNN's head and keys. The published runs read 100,000 texts
up to 64 times, in which one symbol fills the places between the keys, which are
random here. These models read 24,000 to 96,000 texts once.

'untied' is SimpleRNN with a head of its own, 'small_state' with four heads of
16 x 16, 'forgets' with its usual gates: what the recipe owes to each.
'80_keys', '112_keys' and 'coupled' have half the state. 'keeps' are cells whose
gates start where SimpleRNN's do, at .9997 or .9995, and '8_heads' is a Mamba-2
of eight decays over the same keys. 'one_filler' is the published form, and
'longer' reads three times as many texts. A run takes about 4 minutes on a core.
More seeds of the hardest:
--only='simple_rnn/256-16/0.01' --seeds=0,1,2,3,4.
"""

from configs.experiments import _widths
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

SIZES = ((256, 16), (128, 8), (64, 4))  # symbols, pairs; the hardest first
TOKENS = 4096  # of a batch
STEPS = 1500
RATES = (1e-2, 3e-3)
MATRIX = {'cell.heads': 1, 'cell.key_width': 112}
MATRICES = (
  'retnet',
  'gla',
  'hgrn2',
  'mamba2',
  'mlstm',
  'deltanet',
  'gated_deltanet',
  'kda',
  'rwkv7',
)
LONGER = {'train.steps': 3 * STEPS}
ONE_FILLER = {'data.mqar.filler': 'one'}
SMALLER = {'cell.key_width': 80, 'cell.value_width': 40}  # 30 KiB of state
COUPLED = {**SMALLER, 'cell.preset': 'coupled', 'cell.input_gate': False}
ABLATIONS = {  # of the hardest size: a cell, a rate and what differs
  'simple_rnn-untied': ('simple_rnn', 1e-2, {'model.tied': False}),
  'simple_rnn-small_state': (
    'simple_rnn',
    1e-2,
    {'cell.heads': 4, 'cell.key_width': 16, 'cell.value_width': 16},
  ),
  'simple_rnn-forgets': (
    'simple_rnn',
    1e-2,
    {'cell.gate_bias': 3.0, 'cell.gate_spread': 2.0},
  ),
  'simple_rnn-80_keys': ('simple_rnn', 1e-2, SMALLER),
  'simple_rnn-112_keys': (
    'simple_rnn',
    1e-2,
    {'cell.key_width': 112, 'cell.value_width': 28},
  ),
  'simple_rnn-coupled': ('simple_rnn', 1e-2, COUPLED),
  'simple_rnn-80_keys-longer': ('simple_rnn', 1e-2, SMALLER | LONGER),
  'simple_rnn-coupled-longer': ('simple_rnn', 1e-2, COUPLED | LONGER),
  'gla-keeps': ('gla', 1e-2, {'cell.temperature': 2048.0}),
  'hgrn2-keeps': ('hgrn2', 1e-2, {'cell.lower_bound': 0.999}),
  'mlstm-keeps': ('mlstm', 1e-2, {'cell.forget_biases': (8.0, 8.0)}),
  'mamba2-8_heads': ('mamba2', 1e-2, {'cell.heads': 8, 'cell.value_width': 12}),
  'simple_rnn-one_filler': ('simple_rnn', 1e-2, ONE_FILLER),
  'simple_rnn-one_filler-longer': ('simple_rnn', 1e-2, ONE_FILLER | LONGER),
  'attention-one_filler': ('attention', 3e-3, ONE_FILLER),
}


def get_grid():
  """Returns the grid."""
  variants = {
    f'{cell}/{length}-{pairs}/{rate:g}': _variant(cell, length, pairs, rate)
    for cell in _widths.CELLS
    for length, pairs in SIZES
    for rate in RATES
  }
  # At both others it has learned little.
  for length, pairs in (SIZES[0], SIZES[-1]):
    variants[f'attention/{length}-{pairs}/0.001'] = _variant(
      'attention', length, pairs, 1e-3
    )
  length, pairs = SIZES[0]
  for name, (cell, rate, own) in ABLATIONS.items():
    variants[f'{name}/{length}-{pairs}/{rate:g}'] = _variant(
      cell, length, pairs, rate, own
    )
  return grid.Grid(
    title='Multi-query associative recall',
    config='configs/long_range.py:mqar',
    variants=variants,
    metrics=(('accuracy', 'higher', 'values found'),),
    axes=axes.Axes('cell', 'symbols-pairs', 'rate'),
    seeds=(0,),
  )


def _variant(cell, length, pairs, rate, own=None):
  own = own or {}
  rows = TOKENS // length
  steps = own.get('train.steps', STEPS)
  return {
    'config': f'configs/long_range.py:mqar,{cell}',
    **_widths.of(cell, _widths.MQAR),
    **(MATRIX if cell in MATRICES else {}),
    'data.length': length,
    'data.boundaries': (length,),
    'data.batch_size': rows,
    'data.splits': (95, 5, 0),
    'data.mqar.length': length,
    'data.mqar.pairs': pairs,
    'data.mqar.examples': steps * rows * 10 // 9 + 100,
    'train.steps': steps,
    'train.checkpoint_every': steps,
    'evaluate.every': steps,
    'evaluate.tokens': 200_000,
    'optimizer.learning_rate': rate,
    **own,
  }
