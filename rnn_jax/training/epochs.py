"""The number of steps of a run whose length is `train.epochs`.

An epoch has as many draws as there are windows of training examples. Its steps
are the batches that its plan has (data/batching/plan.py); of a long run, the
first blocks of the plan count for all. A run ends after the last of these
steps, to which learning rates refer as to `train.steps`.
"""

import math

from rnn_jax import config as config_lib
from rnn_jax.config import values
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline


def resolve(
  config: config_lib.Config, corpus: corpus_lib.Corpus, multiple: int
) -> config_lib.Config:
  """Returns the config with `train.steps` for `train.epochs`.

  Args:
    config: of the run, whose rows per batch are known.
    corpus: its documents.
    multiple: divides the rows of a batch.
  """
  epochs = config.train.epochs
  steps = math.ceil(pipeline.batches_in(epochs, corpus, config, multiple))
  return values.replaced(config, {'train.steps': max(steps, 1)})
