"""Regression of series: a number for each, from its readings.

    loss = e^2                                     task.loss = 'squared'
    loss = e^2 / 2 up to |e| = d, d (|e| - d / 2)  'huber'; d = task.delta

e is the error in standard deviations of the training targets. The model is
models/series_labels.py. Source: Huber, "Robust Estimation of a Location
Parameter", 1964.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from rnn_jax import config as config_lib
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples as examples
from rnn_jax.models import experts
from rnn_jax.models import series_ensemble
from rnn_jax.models import series_labels
from rnn_jax.tasks import base
from rnn_jax.tasks import series_classification

LOSSES = 'squared', 'huber'


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # Of a series' states; 'concat': all of them.
  pooling: str = config_lib.option('mean', choices='ops.pooling:KINDS')
  loss: str = config_lib.option('squared', choices=LOSSES)
  # Standard deviations from which the loss is linear.
  delta: float = config_lib.option(1.0, minimum=1e-3, needs="task.loss='huber'")
  # Models that are trained side by side; their mean is predicted.
  members: int = config_lib.option(1, minimum=1, excludes='model.experts.count')

  writes_text: ClassVar[bool] = False
  reads_series: ClassVar[bool] = True
  series_label: ClassVar[str] = labelled.NUMBER
  loss_per: ClassVar[str] = 'series'
  predictor: ClassVar[str] = 'rnn_jax.evaluation.regression'
  excludes: ClassVar[tuple[str, ...]] = (
    *series_classification.EXCLUDES,
    'train.label_smoothing',
  )


make_examples = examples.Labelled  # workers import that file, and no jax
check_documents = examples.check


class Task(series_classification.Task):
  """The model of a config, its loss and metrics."""

  headline = 'error', 'scaled error'

  def make_model(self) -> series_labels.Labeller:
    """Returns the model of the config."""
    return series_ensemble.labeller(self._config, 1, self._config.task.pooling)

  def target_sums(
    self, out_BxLxO: jax.Array, targets_BxL: jax.Array, weights_BxL: jax.Array
  ) -> base.Sums:
    """Returns the weighted sums over steps with a target."""
    error_BxL = out_BxLxO[..., 0] - targets_BxL
    if self._config.task.loss == 'huber':
      loss_BxL = optax.huber_loss(error_BxL, delta=self._config.task.delta)
    else:
      loss_BxL = jnp.square(error_BxL)
    loss = jnp.sum(weights_BxL * loss_BxL)
    return {
      'objective': loss,
      'loss': loss,
      'error': jnp.sum(weights_BxL * jnp.abs(error_BxL)),
      'weight': jnp.sum(weights_BxL),
    }

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums, in standard deviations."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'error': sums['error'] / sums['weight'],
      **experts.metrics(sums),
    }


make = Task
