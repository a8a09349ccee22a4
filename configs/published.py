"""SimpleRNN as published, with the 189,504 parameters of its benchmark.

  python -m launch.train --config=configs/published.py --workdir=runs/published

Vocabulary 512, D 128, K 32, P 64, two layers without norms or residuals, an
untied head; batches of 32 x 512 tokens, AdamW at 1e-3, gradients clipped to
norm 1. Only the 'modified' preset has dropout (--config.cell.preset=modified
--config.cell.dropout=0.1 --config.model.dropout=0.1). The text is the sources
of Python's standard library.
"""

from rnn_jax import config as config_lib

MODEL = {  # turns any other config into this model
  'model.embedding_scale': 1.0,
  'model.branch_scale': 1.0,
  'model.token_dropout': 0.0,
  'model.block': 'plain',
  'model.layers': 2,
  'model.unroll': 2,
  'model.width': 128,
  'model.embedding_width': 0,
  'model.mlp_width': 0,
  'model.tied': False,
  'cell.heads': 1,
  'cell.key_width': 32,
  'cell.value_width': 64,
  'cell.decay': 'key',
  'cell.attention': 'none',
}
RECIPE = {  # how it was trained on a task
  'data.batch_size': 32,
  'train.steps': 0,
  'train.epochs': 10.0,
  'evaluate.patience': 5,
  'optimizer.learning_rate': 1e-3,
  'optimizer.weight_decay': 0.01,
  'schedule.final_learning_rate': 1e-3,
}


def variants(recipe):
  """Returns a grid's variants: both published presets, and our model's two.

  Args:
    recipe: {'section.key': value} of the published ones, besides MODEL.
  """
  named = {}
  for preset, dropout in (('simple', 0.0), ('modified', 0.1)):
    named[preset] = {**MODEL, **recipe, 'cell.preset': preset} | {
      f'{section}.dropout': dropout for section in ('cell', 'model')
    }
  for name, attention in (('improved', 'none'), ('improved_luong', 'dot')):
    named[name] = {'cell.preset': 'improved', 'cell.attention': attention}
  return named


def get_config():
  """Returns the config."""
  config = config_lib.default(layout='packed')
  config.update_from_flattened_dict(MODEL)
  config.cell.preset = 'simple'

  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 512
  config.data.length = 512
  config.data.batch_size = 32

  config.optimizer.learning_rate = 1e-3
  config.optimizer.clip_norm = 1.0
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-3

  config.train.steps = 300
  config.evaluate.every = 100
  return config
