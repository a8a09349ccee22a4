"""SimpleRNN's variants on DailyDialog, and the published scores.

  python -m launch.experiments \\
      --grid=configs/experiments/daily_dialog.py \\
      --workdir=runs/daily_dialog --set=data.path=PATH/train.jsonl \\
      --set=data.validation_path=PATH/validation.jsonl

All variants use the config's data and optimizer and train for about the same
time: the published model takes 2.3 steps in the time of one of ours. 'simple'
and 'modified' are the published model (configs/published.py): two plain layers
without norms, residuals or MLP, one head of 32 keys and 64 values, width 128.
'improved' is the config's model; 'improved_luong' adds attention over its past
outputs.
"""

from configs import published
from rnn_jax.experiments import grid

RECIPE = {
  'train.steps': 2800,
  'train.checkpoint_every': 1400,
  'evaluate.every': 400,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='SimpleRNN on DailyDialog',
    config='configs/daily_dialog.py',
    variants=published.variants(RECIPE),
    metrics=(
      ('perplexity', 'lower', 'perplexity'),
      ('bleu', 'higher', 'BLEU'),
      ('sentence_bleu', 'higher', 'sentence BLEU'),
      ('rouge1', 'higher', 'ROUGE-1'),
      ('rouge2', 'higher', 'ROUGE-2'),
      ('rougeL', 'higher', 'ROUGE-L'),
      ('valid', 'higher', 'valid replies'),
    ),
    baseline='simple',
    notes={
      'simple': {
        'bleu': 0.0129,
        'rouge1': 0.1028,
        'rouge2': 0.0163,
        'rougeL': 0.0995,
        'valid': 0.999,
      },
      'modified': {
        'bleu': 0.0132,
        'rouge1': 0.1005,
        'rouge2': 0.0259,
        'rougeL': 0.0987,
        'valid': 1.0,
      },
    },
  )
