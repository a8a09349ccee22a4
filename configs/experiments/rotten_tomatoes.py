"""SimpleRNN's variants on Rotten Tomatoes, beside the published scores.

  python -m launch.experiments \\
      --grid=configs/experiments/rotten_tomatoes.py \\
      --workdir=runs/rotten_tomatoes --set=data.path=PATH/train.jsonl \\
      --set=data.validation_path=PATH/validation.jsonl

Data, optimizer and schedule are the config's for all variants. 'simple' and
'modified' are the published model (configs/published.py): two plain layers
without norms, residuals or MLP, one head of 32 keys and 64 values, width 128.
'improved' is the config's own model, 'improved_luong' adds attention over its
past outputs.
"""

from rnn_jax.experiments import grid

PUBLISHED_MODEL = {
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


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='SimpleRNN on Rotten Tomatoes',
    config='configs/rotten_tomatoes.py',
    variants={
      'simple': PUBLISHED_MODEL
      | {'cell.preset': 'simple', 'cell.dropout': 0.0, 'model.dropout': 0.0},
      'modified': PUBLISHED_MODEL
      | {'cell.preset': 'modified', 'cell.dropout': 0.1, 'model.dropout': 0.1},
      'improved': {'cell.preset': 'improved', 'cell.attention': 'none'},
      'improved_luong': {'cell.preset': 'improved', 'cell.attention': 'dot'},
    },
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('macro_f1', 'higher', 'macro F1'),
    ),
    baseline='simple',
    notes={
      'simple': {'accuracy': 0.5146, 'macro_f1': 0.4146},
      'modified': {'accuracy': 0.5807, 'macro_f1': 0.5807},
    },
  )
