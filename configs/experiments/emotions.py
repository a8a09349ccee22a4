"""Classes of uneven sizes: the emotion of a turn of DailyDialog.

  python -m launch.experiments --grid=emotions --workdir=runs/emotions \\
      --set=data.path=PATH/emotions_train.jsonl \\
      --set=data.validation_path=PATH/emotions_validation.jsonl

A row of the files is a turn's `text` and the name of its emotion as `label`;
the split is the published one (Li et al., "DailyDialog", 2017). Of the 87,159
turns for training 83 % have no emotion, .2 % are of fear. The model is that of
configs/text_classification.py, and reads each turn once. 'balanced' weighs a
class by the inverse of its size, 'sqrt_balanced' by the square root of that.
"""

from rnn_jax.experiments import grid

CLASSES = (
  'none',
  'anger',
  'disgust',
  'fear',
  'happiness',
  'sadness',
  'surprise',
)
STEPS = 1362
SHARED = {
  'data.source': 'jsonl',
  'data.splits': (100, 0, 0),
  'data.classes': CLASSES,
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
      **{
        name: SHARED | {'task.class_weights': name}
        for name in ('sqrt_balanced', 'balanced')
      },
    },
    metrics=(
      ('macro_f1', 'higher', 'macro F1'),
      ('accuracy', 'higher', 'accuracy'),
    ),
    baseline='as_it_is',
    seeds=(0, 1, 2),
  )
