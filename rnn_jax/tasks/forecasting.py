"""Forecasting: predict the next H readings of a series, at every step.

    loss = sum_t w_t mean_h loss(y_{t+h}, head_t,h)        scaled readings

w_t is the part of a step's horizon that is observed. The loss is the head's
(models/forecast_heads.py), of readings in the units of the step's own scale, so
that every series counts alike; `error` is the absolute error of the median.
"""

import dataclasses
from typing import Any
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.series import examples
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import blocks
from rnn_jax.models import experts
from rnn_jax.models import series
from rnn_jax.tasks import base

Sums = base.Sums
PyTree = base.PyTree


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  head: str = config_lib.option(
    'quantiles', choices='models.forecast_heads:KINDS'
  )
  # Levels that head 'quantiles' learns, and that evaluations show.
  quantiles: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
  # The forecast that the model corrects.
  anchor: str = config_lib.option('season', choices='models.series:ANCHORS')

  writes_text: ClassVar[bool] = False
  predicts_all: ClassVar[bool] = True
  reads_series: ClassVar[bool] = True
  loss_per: ClassVar[str] = 'reading'
  predictor: ClassVar[str] = 'rnn_jax.evaluation.forecasts'
  excludes: ClassVar[tuple[str, ...]] = (
    'remat.segment',
    'mesh.sequence!=1',
    'mesh.pipe!=1',
    'distillation.teacher',
    'adapters.rank',
    'model.embedding_width',
    'model.embedding_norm',
    'model.bidirectional',
    'model.tied',
    'model.token_dropout',
    'model.logits_cap',
    "model.positions!='none'",
    'train.label_smoothing',
    'train.z_loss',
    "data.tokenizer!='bytes'",
    'data.curriculum',
    'data.rarity_buckets>1',
    'data.feature_buckets>1',
  )

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    levels = [*self.quantiles]
    if levels != sorted({*levels}) or not levels:
      errors.refuse('task.quantiles', self.quantiles, 'give ascending levels')
    if levels[0] <= 0 or levels[-1] >= 1:
      errors.refuse(
        'task.quantiles', self.quantiles, 'give levels between 0 and 1'
      )
    data: Any = config.data
    if self.head == 'negative_binomial' and data.scaling != 'counts':
      errors.refuse(
        'data.scaling',
        data.scaling,
        f"task.head={self.head!r} is of counts: give 'counts', or another head",
      )
    if not data.holds_series or not data.window:
      return  # not resolved yet
    if self.anchor == 'season' and data.window < data.season:
      errors.refuse(
        'data.window',
        data.window,
        f"task.anchor='season' sees the last season: give data.season="
        f"{data.season} or more, or task.anchor='last'",
      )


make_examples = examples.Forked  # workers import that file, and no jax
check_documents = examples.check


class Task(base.Task):
  """The forecaster of a config, its loss and metrics."""

  headline = 'error', 'scaled error'
  unit = 'readings'

  def __init__(
    self, config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
    del tokenizer  # examples are scaled
    self.model = series.from_config(config)
    self._config = config
    self._drops = blocks.drops(config)

  def init_parameters(self, key: jax.Array) -> PyTree:
    """Returns new parameters, float32."""
    batch = self.blank_batch(1, 2)
    params = self.model.init(
      key,
      self.init_state(1),
      jnp.asarray(batch.readings_BxLxW),
      jnp.asarray(batch.calendar_BxLxF),
      covariates=series.Covariates.of(batch),
    )['params']
    return blocks.scaled(params, key, self._config.model)

  def blank_batch(self, rows: int, length: int) -> batch_lib.Batch:
    """Returns a batch of padding."""
    data: Any = self._config.data
    besides = data.covariate_widths
    return rows_lib.blank_series(rows, length, data.widths, besides)

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
      dict of scalars: 'objective', 'loss', 'error' and 'weight', the number of
      steps.
    """
    rngs = self._rngs(key)
    (state, forecasts), routes = experts.apply(
      self.model,
      params,
      state,
      batch.readings_BxLxW,
      batch.calendar_BxLxF,
      batch.starts_BxL,
      series.Covariates.of(batch),
      rngs=rngs,
    )
    sums = self._sums(forecasts, batch)
    weights = batch.weights_BxL
    sums = experts.with_load(
      sums, routes, weights, weights, self._config.model.experts
    )
    return sums['objective'], (sums, state)

  def _sums(self, forecasts, batch):
    head = self.model.bind({}).numbers
    future = batch.future_BxLxH
    observed = ~jnp.isnan(future)
    loc, scale = forecasts.loc_BxLxH, forecasts.scale_BxLxH
    y = jnp.where(observed, (future - loc) / scale, 0)

    def total(each):
      """Returns the weighted sum of means over what is observed."""
      count = jnp.maximum(jnp.sum(observed, -1), 1)
      means = jnp.sum(jnp.where(observed, each, 0), -1) / count
      return jnp.sum(batch.weights_BxL * means)

    loss = total(head.loss(forecasts.numbers, y, scale))
    return {
      'objective': loss,
      'loss': loss,
      'error': total(jnp.abs(y - head.median(forecasts.numbers))),
      'weight': jnp.sum(batch.weights_BxL),
    }

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums, in scaled readings."""
    return {
      'loss': sums['loss'] / sums['weight'],
      'error': sums['error'] / sums['weight'],
      **experts.metrics(sums),
    }


make = Task
