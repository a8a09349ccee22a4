"""Questions by the kind of their answer, TREC: the config for a user's texts.

  python -m launch.experiments --grid=trec --workdir=runs/trec \\
      --set=data.source=jsonl --set=data.path=PATH/trec.jsonl

The file has the 5,452 training questions of Li and Roth, "Learning Question
Classifiers" (2002), a `text` and one of six classes as its `label` in each row.
configs/text_classification.py holds a tenth of them back for the test, and a
tenth for validation. 'shipped' is that config. In 'words_and_pairs' its linear
SVM has no other features and half of the vote, and the network no n-grams;
'network' is that one's network by itself, and 'small' has 4,096 tokens. Of the
latter 'both_ways' reads the questions in both directions, 'lstm' and
'simple_rnn' have other cells, and 'bayes' is a SimpleRNN in a residual block
over byte pairs with capital letters, with a mean over time and naive Bayes
evidence, which stops early.
"""

from rnn_jax.experiments import grid

WORDS_AND_PAIRS = {
  'task.svm': 4.0,
  'task.svm_share': 0.5,
  'task.pairs': 2**16,
  'task.openings': 0,
  'task.case': False,
  'task.ngrams': 0,
  'data.lowercase': True,
  'data.vocabulary': 8192,
}
NETWORK = WORDS_AND_PAIRS | {'task.svm': 0.0, 'evaluate.criterion': 'errors'}
SMALL = NETWORK | {'data.vocabulary': 4096}
BAYES = SMALL | {
  'task.pooling': 'mean',
  'task.evidence': 0.5,
  'data.pre_tokenizer': 'byte_level',
  'data.lowercase': False,
  'data.batch_size': 32,
  'model.cell': 'simple_rnn',
  'model.block': 'residual',
  'model.width': 128,
  'model.embedding_scale': 0.02,
  'model.branch_scale': 0.02,
  'model.token_dropout': 0.3,
  'cell.value_width': 32,
  'cell.decay': 'head',
  'optimizer.learning_rate': 1e-3,
  'optimizer.b2': 0.99,
  'schedule.final_learning_rate': 1e-5,
  'train.steps': 1000,
  'evaluate.every': 50,
  'evaluate.patience': 4,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='TREC: questions by the kind of their answer',
    config='configs/text_classification.py',
    variants={
      'shipped': {},
      'words_and_pairs': WORDS_AND_PAIRS,
      'network': NETWORK,
      'small': SMALL,
      'both_ways': SMALL | {'model.bidirectional': True},
      'lstm': SMALL | {'model.cell': 'lstm'},
      'simple_rnn': SMALL | {'model.cell': 'simple_rnn'},
      'bayes': BAYES,
    },
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('macro_f1', 'higher', 'macro F1'),
    ),
    baseline='shipped',
    split='test',
    seeds=(0, 1, 2, 3, 4),
  )
