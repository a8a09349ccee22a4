"""All cells at one number of weights: loss, speed, memory, latency, recall.

The model is that of configs/tiny_shakespeare.py on the first data set of
benchmarks.datasets; the reference is SimpleRNN, and every other cell gets the
width at which the model comes nearest to as many weights. Each trains for as
many steps on the same batches, and learns associative recall at one distance.

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
  'bdh': 'neurons',
}
STEPS = 400
RECALL_STEPS = 500
DISTANCE = 16
QUICK = {'length': 16, 'batch': 2, 'width': 32, 'limit': 200}


def cases(quick):
  """Training, decoding and recall of each cell."""
  data = datasets.names()[0]
  small = QUICK if quick else {}
  listed = []
  for cell, size in SIZES.items():
    chosen = {'cell': cell, 'size': size}
    train = {**chosen, 'data': data, 'steps': 3 if quick else STEPS, **small}
    recall = {
      **chosen,
      'distance': 4 if quick else DISTANCE,
      'steps': 3 if quick else RECALL_STEPS,
    }
    few = {'steps': 20} if quick else {}
    listed += [
      cases_lib.Case(f'{cell}: training', 'cells.training', train, 1),
      cases_lib.Case(f'{cell}: decoding', 'cells.decoding', chosen | few, 1),
      cases_lib.Case(f'{cell}: recall', 'cells.recall', recall, 1),
    ]
  return cases_lib.framed(listed, quick)
