"""The sample tickets, as configs/text_classification.py trains on them.

  python -m launch.experiments --grid=text_classification \\
      --workdir=runs/text_classification
"""

from rnn_jax.experiments import grid


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Support tickets by class',
    config='configs/text_classification.py',
    variants={'shipped': {}},
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('loss', 'lower', 'nats per text'),
    ),
    split='test',
    seeds=(0,),
  )
