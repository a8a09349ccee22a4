"""SimpleRNN on DailyDialog in the published way, and the published scores.

  python -m launch.experiments \\
      --grid=configs/experiments/daily_dialog_published.py \\
      --workdir=runs/daily_dialog_published \\
      --set=data.path=PATH/train.jsonl \\
      --set=data.validation_path=PATH/validation.jsonl

A dialogue gives one pair, its first turn and the reply, in batches of 32; AdamW
at 1e-3, 10 epochs at most, or until 5 of them have brought no lower loss; the
checkpoint with the lowest loss; greedy replies of 50 tokens at most. The
published vocabulary isn't known; this is that of configs/daily_dialog.py.
'improved' is the model of that config, trained in the same way. Which BLEU was
published isn't known either: both the corpus BLEU and the mean of the replies'
are reported.
configs/experiments/daily_dialog.py compares models on all turns.
"""

from configs import published
from configs.experiments import daily_dialog
from rnn_jax.experiments import grid

EPOCH = 348  # steps: 11,118 pairs, 32 a step
RECIPE = {
  **published.RECIPE,
  'task.turns': 'first',
  'task.min_reply_tokens': 0,
  'task.reply_temperature': 0.0,
  'data.layout': 'buckets',
  'data.length': 256,
  'train.precision': 'float32',
  'train.checkpoint_every': EPOCH,
  'evaluate.every': EPOCH,
}


def get_grid():
  """Returns the grid."""
  models = published.variants(RECIPE)
  compared = daily_dialog.get_grid()
  variants = {name: models[name] for name in compared.notes}
  variants['improved'] = RECIPE | models['improved']
  return grid.Grid(
    title='SimpleRNN on DailyDialog, as published',
    config=compared.config,
    variants=variants,
    metrics=compared.metrics,
    baseline=compared.baseline,
    notes=compared.notes,
  )
