"""Tasks whose answers need what was read long before, on generated texts.

  python -m launch.train --config=configs/long_range.py:parity,gated_deltanet \\
      --config.cell.max_beta=2 --workdir=runs/parity

Before the comma is one of TASKS, after it a model of configs/recall.py, or
nothing for simple_rnn. Models have two layers of width 64 without MLPs, for
mqar of width 128:

  mqar            256 of 8,192 symbols, 16 pairs: the value of each key
  parity, s5      64 letters: their running product. The test split has texts of
                  256, so that `launch.evaluate --split=test` says whether what
                  was learned holds on longer ones
  arithmetic      sums and products modulo 5, of 3 to 40 characters: the value
                  so far. The test split has longer texts, of up to 160
  brackets        the same with brackets: the value of each
  listops         the value of nested operations, of 20 to 120 characters
  digits          a digit's class from its 64 pixels, one after another

With 8,192 symbols each is rarely seen. What makes mqar quick to learn is in
RECALL: one matrix of embeddings for reading and for answers, which starts as
random directions and changes slowly. docs/analysis.md has results.
"""

from configs import recall
from rnn_jax import config as config_lib
from rnn_jax import errors

TASKS = {  # the source, and its options
  'mqar': (
    'mqar',
    {
      'length': 256,
      'batch_size': 16,
      'mqar.length': 256,
      'mqar.pairs': 16,
      'mqar.examples': 27_000,  # each read once
    },
  ),
  'parity': ('word_problem', {'word_problem.group': 'parity'}),
  's5': ('word_problem', {'word_problem.group': 's5'}),
  'arithmetic': ('modular_arithmetic', {'length': 40}),
  'brackets': (
    'modular_arithmetic',
    {'length': 40, 'modular_arithmetic.brackets': True},
  ),
  'listops': ('listops', {'length': 128, 'classes': tuple('0123456789')}),
  'digits': (
    'sequential_digits',
    {'length': 80, 'classes': tuple('0123456789'), 'splits': (70, 10, 20)},
  ),
}

RECALL = {  # of mqar
  'model.width': 128,
  'model.tied': True,
  'optimizer.multipliers': (('.*embedding.*', 0.3),),
  'optimizer.learning_rate': 1e-2,
  'train.steps': 1500,
}
KEEPING = {  # its simple_rnn: one large state that starts by forgetting little
  'heads': 1,
  'key_width': 112,
  'value_width': 64,
  'gate_bias': 8.0,
  'gate_spread': 0.0,
}


def get_config(which='s5'):
  """Returns the config of a task and a model.

  Raises:
    InputError: `which` doesn't begin with one of TASKS, or its model is not one
      of configs/recall.py.
  """
  task, _, model = which.partition(',')
  if task not in TASKS:
    raise errors.InputError(
      f'configs/long_range.py:{which}: begin with one of {sorted(TASKS)}, then '
      'a comma and a cell'
    )
  source, options = TASKS[task]
  config = recall.get_config(model or 'simple_rnn')
  classifies = 'classes' in options
  config_lib.override(
    config,
    {
      'task.name': 'classification' if classifies else 'tagging',
      'data.source': source,
    },
  )
  if task == 'mqar':
    config_lib.override(config, RECALL)
    config.cell.update(KEEPING if config.model.cell == 'simple_rnn' else {})
  if classifies:
    config.task.pooling = 'last'
    config.evaluate.criterion = 'errors'
  if source == 'word_problem':
    config.evaluate.length = config.data.word_problem.test_length
  if source == 'modular_arithmetic':
    config.evaluate.length = config.data.modular_arithmetic.test_longest
  config_lib.override(config, {f'data.{k}': v for k, v in options.items()})
  config.data.boundaries = (config.data.length,)
  config.sample.new_tokens = 0
  return config
