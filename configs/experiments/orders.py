"""Whether the order or the length of training texts changes what is learned.

  python -m launch.experiments --grid=configs/experiments/orders.py \\
      --workdir=runs/orders --set=data.path=PATH/train.jsonl \\
      --set=data.validation_path=PATH/validation.jsonl

The network of configs/rotten_tomatoes.py without its evidence, six epochs.
'shuffled' is the usual order. 'by_length', 'by_rarity' and 'combined' are
curricula: two epochs with 80 % easy texts, two with 60 %, then 40 %. 'growing'
cuts texts to 18 tokens for an epoch and to 36 for another.
"""

from rnn_jax.experiments import grid

SHARED = {
  'task.evidence': 0.0,
  'optimizer.learning_rate': 2e-3,
  'train.steps': 800,
}


def get_grid():
  """Returns the grid."""
  variants = {'shuffled': {}}
  for name, kind in (
    ('by_length', 'length'),
    ('by_rarity', 'rarity'),
    ('combined', 'combined'),
  ):
    variants[name] = {'data.curriculum': kind, 'data.curriculum_epochs': 2}
  variants['growing'] = {'data.length_schedule': (18, 36)}
  return grid.Grid(
    title='Order and length of the training texts',
    config='configs/rotten_tomatoes.py',
    variants={name: SHARED | own for name, own in variants.items()},
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('loss', 'lower', 'loss'),
    ),
    baseline='shuffled',
    seeds=(0, 1, 2),
  )
