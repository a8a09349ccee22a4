"""Classification of pictures; all sums are weighted.

    loss = - log p(class | picture)        in nats

A batch has pictures and their classes, and rows of one step.
"""

import jax.numpy as jnp

from rnn_jax.data import pictures
from rnn_jax.models import blocks
from rnn_jax.models import vision
from rnn_jax.tasks import classification


def make(config, tokenizer):
  """Returns the task of a Config."""
  del tokenizer  # pixels are bytes
  return Task(config)


class Task:
  """The classifier of a config, and what is measured on it."""

  headline = 'accuracy', 'accuracy'
  unit = 'pictures'

  def __init__(self, config):
    self.model = vision.from_config(config)
    self._config = config
    self._drops = blocks.drops(config)

  def init_parameters(self, key):
    """Returns new parameters, float32."""
    image = self.blank_batch(1, 1).image_BxHxWxC
    params = self.model.init(key, jnp.asarray(image))['params']
    return blocks.scaled(params, key, self._config.model)

  def prime(self, params, corpus):
    """Returns new parameters as they begin on a corpus: these."""
    del corpus
    return params

  def init_state(self, B):
    """There is none between pictures."""
    del B

  def blank_batch(self, rows, length):
    """A batch of padding, whose rows have one step."""
    del length
    return pictures.blank(rows, self._config.data.image)

  def letters(self):
    """The letters of the parameters by their path, see parallel/shares.py."""
    return self.model.letters()

  def sums(self, params, state, batch, key=None):
    """Runs the model on a batch; with a `key`, dropout is on.

    Returns:
      (state, sums), sums a dict of scalars: 'objective' is what training
      lowers, with label smoothing; 'loss' is in plain nats; 'weight' counts
      pictures.
    """
    rngs = {}
    if key is not None and self._drops:
      rngs = blocks.dropout_keys(key)
    logits_BxC = self.model.apply(
      {'params': params}, batch.image_BxHxWxC, rngs=rngs
    )
    return state, classification.class_sums(
      logits_BxC[:, None],
      batch.label_B[:, None],
      batch.weights_BxL,
      self._config.train.label_smoothing,
    )

  def summarize(self, sums):
    """Metrics of summed sums, Python floats; loss in nats a picture."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'accuracy': sums['hits'] / sums['weight'],
    }
