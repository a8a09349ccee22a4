"""Classes of uneven sizes: the emotion of a turn of DailyDialog.

  python -m launch.experiments --grid=emotions --workdir=runs/emotions \\
      --set=data.path=PATH/emotions_train.jsonl \\
      --set=data.validation_path=PATH/emotions_validation.jsonl

A row of the files is a turn's `text` and the name of its emotion as `label`;
the split is the published one (Li et al., "DailyDialog", 2017). Of the 87,159
turns for training 83 % have no emotion, .2 % are of fear. The model is that of
configs/text_classification.py, and reads each turn once. 'balanced' weighs a
class by the inverse of its size, 'roots' by the square root of that.
"""

from rnn_jax.experiments import grid

SIZES = {  # of the training turns
  'none': 72_132,
  'anger': 827,
  'disgust': 303,
  'fear': 146,
  'happiness': 11_182,
  'sadness': 969,
  'surprise': 1_600,
}
ROOTS = tuple(
  round((sum(SIZES.values()) / len(SIZES) / size) ** 0.5, 3)
  for size in SIZES.values()
)
STEPS = 1362
SHARED = {
  'data.source': 'jsonl',
  'data.splits': (100, 0, 0),
  'data.classes': tuple(SIZES),
  'data.vocabulary': 8192,
  'train.steps': STEPS,
  'train.checkpoint_every': STEPS,
  'evaluate.every': STEPS,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Emotions of turns: classes of uneven sizes',
    config='configs/text_classification.py',
    variants={
      'as_it_is': SHARED,
      'roots': SHARED | {'task.class_weights': ROOTS},
      'balanced': SHARED | {'task.class_weights': 'balanced'},
    },
    metrics=(
      ('macro_f1', 'higher', 'macro F1'),
      ('accuracy', 'higher', 'accuracy'),
    ),
    baseline='as_it_is',
    seeds=(0, 1, 2),
  )
