"""Tagging of series: a class for each step, from the readings so far.

    loss = - sum_t log p(class_t | readings_1 ... readings_t)        in nats

With model.bidirectional a class is predicted from all readings. A step without
a label has no loss. Rows may be windows of a series. The model is
models/series_labels.py.
"""

import dataclasses
from typing import ClassVar

from rnn_jax import config as config_lib
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples as examples
from rnn_jax.models import series_ensemble
from rnn_jax.models import series_labels
from rnn_jax.tasks import series_classification


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # Models that are trained side by side; their mean logits classify.
  members: int = config_lib.option(1, minimum=1, excludes='model.experts.count')

  writes_text: ClassVar[bool] = False
  predicts_all: ClassVar[bool] = True
  reads_series: ClassVar[bool] = True
  series_label: ClassVar[str] = labelled.STEPS
  class_weights: ClassVar[str] = 'none'
  loss_per: ClassVar[str] = 'step'
  predictor: ClassVar[str] = 'rnn_jax.evaluation.series_tagging'
  excludes: ClassVar[tuple[str, ...]] = series_classification.EXCLUDES


make_examples = examples.Labelled  # workers import that file, and no jax
check_documents = examples.check


class Task(series_classification.Task):
  """The model of a config, its loss and metrics."""

  headline = 'accuracy', 'labels right'

  def make_model(self) -> series_labels.Labeller:
    """Returns the model of the config."""
    return series_ensemble.labeller(
      self._config, len(self._config.data.classes)
    )


make = Task
