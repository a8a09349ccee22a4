"""Six tasks by which architectures are designed, as published.

  python -m launch.train --config=configs/mad.py:fuzzy_recall,gated_deltanet \\
      --workdir=runs/fuzzy_recall

Before the comma is one of SIZES, after it one of CELLS or another cell of
rnn_jax/cells; nothing is recall and simple_rnn. Two blocks of width 128, each
with a gated MLP, and a state of 4,096 numbers where it is a matrix; 200 epochs
in batches of 128, AdamW, a rate that falls to 1e-6 (Poli et al., "Mechanistic
Design and Scaling of Hybrid Architectures", 2024). 20,000 steps are for a GPU:
configs/experiments/mad.py has the published settings of each task.
"""

from rnn_jax import config as config_lib
from rnn_jax import errors

SIZES = {  # options of data.mad at the first level
  'recall': {'vocabulary': 16, 'length': 128},
  'fuzzy_recall': {'vocabulary': 16, 'length': 128},
  'noisy_recall': {'vocabulary': 32, 'length': 128},
  'copying': {'vocabulary': 16, 'length': 256},
  'compression': {'vocabulary': 16, 'length': 32},
  'memorization': {'vocabulary': 256, 'length': 32, 'examples': 256},
}
MATRIX = {'heads': 8, 'key_width': 16, 'value_width': 32}
CELLS = {
  'simple_rnn': MATRIX | {'preset': 'coupled'},
  'gla': MATRIX,
  'mamba2': MATRIX,
  'gated_deltanet': MATRIX,
  'attention': {'heads': 16, 'head_width': 8},
}
BATCH, EPOCHS = 128, 200


def get_config(which='recall,simple_rnn'):
  """Returns the config of a task and a cell.

  Raises:
    InputError: `which` doesn't begin with one of SIZES, or there is no such
      cell.
  """
  task, _, cell = which.partition(',')
  if task not in SIZES:
    raise errors.InputError(
      f'configs/mad.py:{which}: begin with one of {sorted(SIZES)}, then a '
      'comma and a cell'
    )
  cell = cell or 'simple_rnn'
  kind = 'reconstruction' if task == 'compression' else 'tagging'
  config = config_lib.default(cell, task=kind, source='mad')
  config.cell.update(CELLS.get(cell, {}))

  config.data.tokenizer = 'characters'
  config.data.mad.update(task=task, **SIZES[task])
  config.data.length = config.data.mad.length
  config.data.boundaries = (config.data.length,)
  config.data.batch_size = BATCH
  config.data.workers = 0

  config.model.layers = 2
  config.model.unroll = 2
  config.model.width = 128
  config.model.mlp_width = 344
  config.model.embedding_scale = 0.02

  config.optimizer.learning_rate = 5e-4
  config.optimizer.weight_decay = 0.0
  config.schedule.warmup_steps = 0
  config.schedule.final_learning_rate = 1e-6

  config.train.steps = steps(config.data.mad.examples)
  config.evaluate.every = 1000
  config.evaluate.batch_size = BATCH
  config.sample.new_tokens = 0
  return config


def steps(examples: int) -> int:
  """Returns the steps of 200 epochs of so many texts."""
  return EPOCHS * -(-examples // BATCH)
