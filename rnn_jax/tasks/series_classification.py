"""Classification of series: the class of each, from its readings.

    loss = - log p(class | readings)        in nats, of the last step's pool

The model is models/series_labels.py. With task.class_weights a class's log p is
multiplied by its weight, and the mean is over the weights, as of texts. Members
of an ensemble each have the loss that is trained.
"""

import dataclasses
from typing import Any
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.config import class_weights
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples as examples
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import blocks
from rnn_jax.models import experts
from rnn_jax.models import series_ensemble
from rnn_jax.models import series_labels
from rnn_jax.tasks import base
from rnn_jax.tasks import classification

Sums = base.Sums
PyTree = base.PyTree
# What reads readings, not tokens, has no effect or no meaning.
EXCLUDES = (
  'remat.segment',
  'mesh.sequence!=1',
  'mesh.pipe!=1',
  'distillation.teacher',
  'adapters.rank',
  'model.embedding_width',
  'model.embedding_norm',
  'model.tied',
  'model.token_dropout',
  'model.logits_cap',
  'model.head_multiplier!=1',
  "model.positions!='none'",
  'train.z_loss',
  "data.tokenizer!='bytes'",
  'data.curriculum',
  'data.rarity_buckets>1',
  'data.feature_buckets>1',
)


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # Of a series' states; 'concat': all of them.
  pooling: str = config_lib.option('mean', choices='ops.pooling:KINDS')
  # 'none', 'balanced', 'sqrt_balanced' or a number for each class.
  class_weights: str | tuple[float, ...] = class_weights.NONE
  # Models that are trained side by side; their mean logits classify.
  members: int = config_lib.option(1, minimum=1, excludes='model.experts.count')

  writes_text: ClassVar[bool] = False
  classifies: ClassVar[bool] = True
  reads_series: ClassVar[bool] = True
  series_label: ClassVar[str] = labelled.CLASS
  loss_per: ClassVar[str] = 'series'
  predictor: ClassVar[str] = 'rnn_jax.evaluation.classification'
  excludes: ClassVar[tuple[str, ...]] = EXCLUDES

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    class_weights.check(self.class_weights, config.data.classes)


make_examples = examples.Labelled  # workers import that file, and no jax
check_documents = examples.check


class Task(base.Task):
  """The model of a config, its loss and metrics."""

  headline = 'accuracy', 'accuracy'
  unit = 'readings'

  def __init__(
    self, config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
    del tokenizer  # examples are scaled
    self._config: Any = config
    self._drops = blocks.drops(config)
    self.model = self.make_model()

  def make_model(self) -> series_labels.Labeller:
    """Returns the model of the config."""
    classes = len(self._config.data.classes)
    pooling = self._config.task.pooling
    return series_ensemble.labeller(self._config, classes, pooling)

  def init_parameters(self, key: jax.Array) -> PyTree:
    """Returns new parameters, float32."""
    readings = jnp.asarray(self.blank_batch(1, 2).readings_BxLxW)
    params = self.model.init(key, self.init_state(1), readings)['params']
    return blocks.scaled(params, key, self._config.model)

  def blank_batch(self, rows: int, length: int) -> batch_lib.Batch:
    """Returns a batch of padding."""
    return rows_lib.blank_series(rows, length, self._config.data.widths)

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
      state: the recurrent state before the batch, B rows of it.
      batch: Batch.
      key: PRNG key of dropout, or None.

    Returns:
      (objective, (sums, state)): training minimizes the objective. `sums` is a
      dict of scalars: 'objective', 'loss', 'weight', the number of targets, and
      those of `target_sums`.
    """
    rngs = self._rngs(key)
    (state, made), routes = experts.apply(
      self.model,
      params,
      state,
      batch.readings_BxLxW,
      batch.starts_BxL,
      rngs=rngs,
      method='each',
    )
    weights_BxL = batch.weights_BxL
    targets_BxL = jnp.where(weights_BxL > 0, batch.future_BxLxH[..., 0], 0)

    def sums_of(out_BxLxO):
      return self.target_sums(out_BxLxO, targets_BxL, weights_BxL)

    sums = sums_of(series_labels.mean(made))
    if len(made) > 1:
      losses = [sums_of(each)['objective'] for each in made]
      sums['objective'] = sum(losses[1:], losses[0]) / len(made)
    sums = experts.with_load(
      sums, routes, weights_BxL, weights_BxL, self._config.model.experts
    )
    return sums['objective'], (sums, state)

  def target_sums(
    self, out_BxLxO: jax.Array, targets_BxL: jax.Array, weights_BxL: jax.Array
  ) -> Sums:
    """Returns the weighted sums over steps with a target."""
    return classification.class_sums(
      out_BxLxO,
      targets_BxL.astype(jnp.int32),
      weights_BxL,
      self._config.train.label_smoothing,
      class_weights.numbers(self._config.task.class_weights),
    )

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums; the loss in nats per target."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'accuracy': sums['hits'] / sums['weight'],
      **experts.metrics(sums),
    }


make = Task
