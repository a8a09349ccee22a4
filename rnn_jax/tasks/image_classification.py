"""Classification of pictures; all sums are weighted.

    loss = - log p(class | picture)        in nats

A batch has pictures and their classes, and rows of one step.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import image_classification as examples
from rnn_jax.models import blocks
from rnn_jax.models import vision
from rnn_jax.tasks import classification


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  classifies: ClassVar[bool] = True
  reads_images: ClassVar[bool] = True
  writes_text: ClassVar[bool] = False
  predictor: ClassVar[str] = 'rnn_jax.evaluation.classification'

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if config.remat.segment not in (0, 1):
      errors.refuse(
        'remat.segment',
        config.remat.segment,
        'a picture is a row of one step: give 1',
      )
    model, patch, size = (
      config.model,
      config.vision.patch,
      config.data.image.size,
    )
    if size % patch:
      errors.refuse(
        'vision.patch', patch, f'it must divide data.image.size={size}'
      )
    if model.embedding_width not in (0, model.width):
      errors.refuse(
        'model.embedding_width',
        model.embedding_width,
        f'patches are model.width={model.width} wide: give 0',
      )


make_examples = examples.make  # workers import that file, and no jax
check_documents = examples.check


def make(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> 'Task':
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

  def init_from_data(self, params, corpus):
    """Returns the parameters to begin with on a corpus: these."""
    del corpus
    return params

  def init_state(self, B):
    """There is none between pictures."""
    del B

  def blank_batch(self, rows, length):
    """A batch of padding, whose rows have one step."""
    del length
    return images.blank(rows, self._config.data.image)

  def logical_axes(self):
    """The logical axes of the parameters by path, see shapes.py."""
    return self.model.logical_axes()

  def loss(self, params, state, batch, key=None):
    """Runs the model on a batch; with a `key`, dropout is on.

    Args:
      params: the parameters.
      state: None, returned as it is.
      batch: Batch.
      key: PRNG key of dropout, or None.

    Returns:
      (objective, (sums, state)): the objective is what training lowers, a sum
      over pictures with label smoothing. `sums` is a dict of scalars:
      'objective', 'loss' in plain nats, 'weight', the number of pictures, and
      'hits'.
    """
    rngs = {}
    if key is not None and self._drops:
      rngs = blocks.dropout_keys(key)
    logits_BxC = self.model.apply(
      {'params': params}, batch.image_BxHxWxC, rngs=rngs
    )
    sums = classification.class_sums(
      logits_BxC[:, None],
      batch.label_B[:, None],
      batch.weights_BxL,
      self._config.train.label_smoothing,
    )
    return sums['objective'], (sums, state)

  def summarize(self, sums):
    """Metrics of summed sums, Python floats; loss in nats a picture."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'accuracy': sums['hits'] / sums['weight'],
    }
