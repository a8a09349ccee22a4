"""All cells at one number of weights: loss, speed, memory, latency, recall.

The model is that of configs/tiny_shakespeare.py on the first data set of
benchmarks.datasets; the reference is SimpleRNN, and every other cell gets the
width at which the model comes nearest to as many weights. Each trains for as
many steps on the same batches, and learns associative recall at one distance,
with two rates: the config's, which a case doesn't name, and a lower one. What a
cell is given of its own besides stands in OWN.

  BENCHMARK_DATA=tiny_shakespeare=PATH/input.txt \\
      python -m benchmarks.run --suite=cells
"""

from benchmarks import cases as cases_lib
from benchmarks import datasets

SIZES = {  # the option that sets a cell's width
  'simple_rnn': '',  # the reference
  'lstm': 'state_width',
  'gru': 'state_width',
  'min_lstm': 'state_width',
  'rhn': 'state_width',
  'qrnn': 'state_width',
  'attention': 'head_width',
  'bdh, normed': 'neurons',
}
# BDH is norms around a sum. Its state forgets nothing: carried along, it would
# keep pairs of characters of the whole text.
OWN = {
  'bdh, normed': {
    'model.block': 'normed',
    'model.norm': 'standard',
    'model.mlp_width': 0,
    'data.carry_state': False,
  }
}
RATES = (3e-3, 1e-3)  # the configs' own, and another
STEPS = 400
RECALL_STEPS = 500
DISTANCE = 16
QUICK = {'data.length': 16, 'data.batch_size': 2, 'model.width': 32}


def cases(quick):
  """Training, decoding and recall of each cell."""
  listed = [case for told in SIZES for case in _of_cell(told, quick)]
  return cases_lib.framed(listed, quick)


def _of_cell(told, quick):
  chosen = {'cell': told.partition(',')[0], 'size': SIZES[told]}
  train = {'data': datasets.names()[0], 'steps': 3 if quick else STEPS}
  recall = {
    'distance': 4 if quick else DISTANCE,
    'steps': 3 if quick else RECALL_STEPS,
  }
  few = {'steps': 20} if quick else {}
  if quick:
    train['limit'] = 200
  for what, parameters, rates in (
    ('training', train, RATES),
    ('decoding', few, RATES[:1]),
    ('recall', recall, RATES),
  ):
    for rate in rates[:1] if quick else rates:
      small = QUICK if quick and what == 'training' else {}
      changed = OWN.get(told, {}) | small
      name = f'{told}: {what}'
      if rate != RATES[0]:
        changed['optimizer.learning_rate'] = rate
        name += f', {rate:g}'
      given = {'overrides': changed} if changed else {}
      yield cases_lib.Case(
        name, f'cells.{what}', chosen | parameters | given, 1
      )
