"""The number of steps of a run whose length is `train.epochs`.

An epoch has as many draws as there are training examples. Its steps are

    tokens per example x examples / tokens per batch

where the tokens per example are those of a sample (all examples, up to 2,000),
and the tokens per batch those of the layout on rows of the same lengths. Images
have the same rows in each batch. A run ends after the last of these steps, to
which learning rates refer as to `train.steps`.
"""

import math

from rnn_jax import config as config_lib
from rnn_jax.config import values
from rnn_jax.data import pipeline


def resolve(
  config: config_lib.Config, corpus: pipeline.Corpus, multiple: int
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
