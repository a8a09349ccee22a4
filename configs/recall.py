"""Associative recall at a distance: pairs, a gap, then queries for the pairs.

  python -m launch.train --config=configs/recall.py --workdir=runs/recall
  python -m launch.train --config=configs/recall.py:attention \\
      --config.cell.window=32 --workdir=runs/recall_window

The models are simple_rnn (improved), two of its presets, simple (as published)
and coupled, and attention, with 24,576 to 25,408 weights per layer, or any
other cell in rnn_jax/cells with its default options. Set the gap with
--config.data.synthetic.distance and adjust data.length and data.boundaries to
it. Other sources are copying and selective_copying. docs/analysis.md has
results.
"""

from rnn_jax import config as config_lib
from rnn_jax import errors

CELLS = {
  'simple_rnn': {'heads': 4, 'key_width': 16, 'value_width': 16},
  'simple': {
    'preset': 'simple',
    'heads': 1,
    'key_width': 64,
    'value_width': 96,
  },
  'coupled': {
    'preset': 'coupled',
    'heads': 4,
    'key_width': 16,
    'value_width': 28,
  },
  'attention': {'heads': 4, 'head_width': 24},
}

PRESETS = 'simple', 'coupled'  # of simple_rnn


def get_config(model='simple_rnn'):
  """Returns the config of one of CELLS, or of another cell.

  Raises:
    InputError: `model` is not one of them.
  """
  known = sorted({*CELLS, *config_lib.names('cells')})
  if model not in known and '.' not in model:  # a dot: a module of one's own
    raise errors.InputError(f'configs/recall.py:{model}: choose one of {known}')
  cell = 'simple_rnn' if model in PRESETS else model
  config = config_lib.default(cell, task='recall', source='recall')
  config.cell.update(CELLS.get(model, {}))

  config.data.tokenizer = 'characters'
  config.data.synthetic.pairs = 4
  config.data.synthetic.distance = 16
  config.data.splits = (90, 5, 5)
  config.data.length = 64
  config.data.boundaries = (64,)
  config.data.batch_size = 32
  config.data.workers = 0

  config.model.layers = 2
  config.model.unroll = 2
  config.model.width = 64

  config.optimizer.learning_rate = 3e-3
  config.optimizer.weight_decay = 0.0
  config.schedule.warmup_steps = 50

  config.train.steps = 1000
  config.train.log_every = 50
  config.evaluate.every = 250
  config.sample.new_tokens = 1
  return config
