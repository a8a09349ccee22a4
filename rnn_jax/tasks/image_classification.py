"""Classification of images; all sums are weighted.

    loss = - log p(class | image)        in nats

With task.class_weights it is multiplied by the class's weight, and the mean is
over the weights: config/class_weights.py.

A batch has images and their classes; rows have one step.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import class_weights
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import image_classification as examples
from rnn_jax.models import blocks
from rnn_jax.models import experts
from rnn_jax.models import vision
from rnn_jax.tasks import base
from rnn_jax.tasks import classification

Sums = base.Sums
PyTree = base.PyTree


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # 'none', 'balanced', 'sqrt_balanced' or a number for each class.
  class_weights: str | tuple[float, ...] = class_weights.NONE

  classifies: ClassVar[bool] = True
  reads_images: ClassVar[bool] = True
  writes_text: ClassVar[bool] = False
  loss_per: ClassVar[str] = 'image'
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
        'an image is a row of one step: give 0 or 1',
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
    class_weights.check(self.class_weights, config.data.classes)


make_examples = examples.Labelled  # workers import that file, and no jax
check_documents = examples.check


class Task(base.Task):
  """The classifier of a config, its loss and metrics."""

  headline = 'accuracy', 'accuracy'
  unit = 'images'

  def __init__(
    self, config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
    del tokenizer  # pixels are bytes
    self.model = vision.from_config(config)
    self._config = config
    self._drops = blocks.drops(config)

  def init_parameters(self, key: jax.Array) -> PyTree:
    """Returns new parameters, float32."""
    image = self.blank_batch(1, 1).image_BxHxWxC
    params = self.model.init(key, jnp.asarray(image))['params']
    return blocks.scaled(params, key, self._config.model)

  def init_state(self, B: int) -> None:
    """Returns None: images have no recurrent state."""
    del B

  def blank_batch(self, rows: int, length: int) -> batch_lib.Batch:
    """Returns a batch of padding, whose rows have one step."""
    del length
    return rows_lib.blank_images(rows, self._config.data.image)

  def loss(
    self,
    params: PyTree,
    state: PyTree,
    batch: batch_lib.Batch,
    key: jax.Array | None = None,
  ) -> tuple[jax.Array, tuple[Sums, PyTree]]:
    """Runs the model on a batch, with dropout if a `key` is given.

    Args:
      params: the parameters.
      state: None, returned unchanged.
      batch: Batch.
      key: PRNG key of dropout, or None.

    Returns:
      (objective, (sums, state)): training minimizes the objective, a sum over
      images with label smoothing. `sums` is a dict of scalars: 'objective',
      'loss' in nats, 'weight', the number of images, and 'hits'.
    """
    rngs = self._rngs(key)
    logits_BxC, routes = experts.apply(
      self.model, params, batch.image_BxHxWxC, rngs=rngs
    )
    sums = classification.class_sums(
      logits_BxC[:, None],
      batch.label_B[:, None],
      batch.weights_BxL,
      self._config.train.label_smoothing,
      class_weights.numbers(self._config.task.class_weights),
    )
    sums = experts.with_load(
      sums,
      routes,
      batch.weights_BxL,
      batch.weights_BxL,
      self._config.model.experts,
    )
    return sums['objective'], (sums, state)

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums; the loss in nats per image."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'accuracy': sums['hits'] / sums['weight'],
      **experts.metrics(sums),
    }


make = Task
