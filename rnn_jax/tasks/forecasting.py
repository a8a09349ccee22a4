"""Forecasting: predict the next H readings of a series, at every step.

    loss = sum_t w_t mean_h loss(y_{t+h}, head_t,h)        scaled readings

w_t is the part of a step's horizon that is observed. With task.loss_every=N
training sums over every N-th step, from one that is drawn, as neighbours
forecast nearly the same. The loss is the head's (models/forecast_heads.py), of
readings in a unit, task.unit:

    window    the spread of the step's window, so that series count alike
    season    the mean of |x_t - x_{t-m}| in the window, as MASE has it of a
              whole series, m the season
    series    the scale of the series (data/series/scaling.py)

`error` is the absolute error of the median in that unit; `mse` and `mae` are of
the point forecast, in that of the series. Members of an ensemble each have the
loss that is trained.
"""

import dataclasses
from typing import Any
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.series import examples
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import blocks
from rnn_jax.models import experts
from rnn_jax.models import forecast_heads
from rnn_jax.models import series
from rnn_jax.models import series_anchors
from rnn_jax.models import series_ensemble
from rnn_jax.models import series_linear
from rnn_jax.tasks import base

Sums = base.Sums
PyTree = base.PyTree
UNITS = 'window', 'season', 'series'
LEAST_UNIT = 0.05  # of a season, in spreads of the window


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  head: str = config_lib.option(
    'quantiles', choices='models.forecast_heads:KINDS'
  )
  # Levels that head 'quantiles' learns, and that evaluations show.
  quantiles: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
  # The forecast that the model corrects.
  anchor: str = config_lib.option(
    'season', choices='models.series_anchors:KINDS'
  )
  # Of readings in the loss.
  unit: str = config_lib.option('window', choices=UNITS)
  # Steps from one that training has a loss of to the next.
  loss_every: int = config_lib.option(1, minimum=1)
  # Forecasters that are trained side by side; their mean forecasts.
  members: int = config_lib.option(1, minimum=1, excludes='model.experts.count')
  # The linear map of the window begins as that of least squares, with so much
  # of its mean square on the diagonal; 0: it begins at 0.
  ridge: float = config_lib.option(0.0, minimum=0)

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
    'model.head_multiplier!=1',
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
    if self.unit != 'window' and self.head in forecast_heads.OF_DISTRIBUTIONS:
      errors.refuse(
        'task.unit',
        self.unit,
        f'task.head={self.head!r} has a loss in nats, which has no unit: give '
        "'window'",
      )
    if not (data.holds_series and data.window and data.season):
      return  # not resolved yet
    if self.unit == 'season' and data.window <= data.season:
      errors.refuse(
        'data.window',
        data.window,
        f"task.unit='season' compares readings data.season={data.season} "
        "apart: give more, or task.unit='window'",
      )
    if self.anchor == 'seasonal_ar' and data.season == 1:
      errors.refuse(
        'task.anchor',
        self.anchor,
        "data.season=1: give a season of several readings, or 'last'",
      )
    least = series_anchors.least_window(self.anchor, data.season, data.horizon)
    if data.window < least:
      errors.refuse(
        'data.window',
        data.window,
        f'task.anchor={self.anchor!r} sees {least} readings, of data.season='
        f"{data.season}: give as many or more, or task.anchor='last'",
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
    self.model = series_ensemble.from_config(config)
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

  def init_from_data(self, params: PyTree, corpus: corpus_lib.Corpus) -> PyTree:
    """Returns initial parameters for a corpus, with its linear map."""
    task, data = self._config.task, self._config.data
    if not task.ridge:
      return params
    examples = corpus.examples(data, 'train')
    return series_linear.put(
      params,
      series_linear.fit(self.model, examples, task.ridge, self._unit),
    )

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
      dict of scalars: 'objective', 'loss', 'error', 'mse', 'mae' and 'weight',
      the number of steps.
    """
    (state, x_BxLxD), routes = experts.apply(
      self.model,
      params,
      state,
      batch.readings_BxLxW,
      batch.calendar_BxLxF,
      batch.starts_BxL,
      series.Covariates.of(batch),
      rngs=self._rngs(key),
      method='features',
    )
    bounds = batch.weights_BxL
    if key is not None and self._config.task.loss_every > 1:
      x_BxLxD, batch = self._some_steps(key, (x_BxLxD, batch))
    made = self.model.apply(
      {'params': params},
      x_BxLxD,
      batch.readings_BxLxW,
      series.Covariates.of(batch),
      method='each',
    )
    sums = self._sums(made, batch)
    sums = experts.with_load(
      sums, routes, batch.weights_BxL, bounds, self._config.model.experts
    )
    return sums['objective'], (sums, state)

  def _some_steps(self, key, arrays):
    """Returns the steps BxL... that training has a loss of."""
    L, every = arrays[0].shape[1], self._config.task.loss_every
    length = (-(-L // every) - 1) * every + 1  # from the first to the last
    first = jax.random.randint(key, (), 0, L - length + 1)

    def some(x):
      x = jax.lax.dynamic_slice_in_dim(x, first, length, axis=1)
      return x[:, ::every]

    return jax.tree.map(some, arrays)

  def _sums(self, made, batch):
    head = self.model.bind({}).numbers
    forecasts = series.mean(made)
    future = batch.future_BxLxH
    observed = ~jnp.isnan(future)
    loc, scale = forecasts.loc_BxLxH, forecasts.scale_BxLxH
    y = jnp.where(observed, (future - loc) / scale, 0)
    unit = self._unit_of_each(batch.readings_BxLxW, scale)

    def total(each):
      """Returns the weighted sum of means over what is observed."""
      count = jnp.maximum(jnp.sum(observed, -1), 1)
      means = jnp.sum(jnp.where(observed, each, 0), -1) / count
      return jnp.sum(batch.weights_BxL * means)

    def loss(numbers):
      each = head.loss(numbers, y, scale)
      return total(each if unit is None else each * unit**head.degree)

    error = jnp.abs(y - head.median(forecasts.numbers))
    losses = [loss(one.numbers) for one in made]
    return {
      'objective': sum(losses[1:], losses[0]) / len(losses),
      'loss': losses[0] if len(made) == 1 else loss(forecasts.numbers),
      'error': total(error if unit is None else error * unit),
      'mse': total(jnp.square(error * scale)),
      'mae': total(error * scale),
      'weight': jnp.sum(batch.weights_BxL),
    }

  def _unit_of_each(self, readings_BxLxW, scale_BxLxH):
    """Returns the scale of each reading in units of the loss, or None."""
    by_target = self.model.sizes.by_target
    scale_BxLxTxH = by_target(scale_BxLxH)
    unit = self._unit(by_target(readings_BxLxW), scale_BxLxTxH[..., :1])
    if unit is None:
      return None
    return jnp.broadcast_to(unit, scale_BxLxTxH.shape).reshape(
      scale_BxLxH.shape
    )

  def _unit(self, windows, scale):
    """Returns the scale ...x1 of windows ...xW in units of the loss, or None.

    None: it is 1.
    """
    task, season = self._config.task, self.model.sizes.season
    if task.unit == 'window':
      return None
    if task.unit == 'series':
      return scale
    differences = jnp.abs(windows[..., season:] - windows[..., :-season])
    seen = ~jnp.isnan(differences)
    count = jnp.maximum(jnp.sum(seen, -1, keepdims=True), 1)
    total = jnp.sum(jnp.where(seen, differences, 0), -1, keepdims=True)
    unit = scale / (total / count + LEAST_UNIT * scale)
    return jnp.where(jnp.any(seen, -1, keepdims=True), unit, 1)

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums, in scaled readings."""
    return {
      'loss': sums['loss'] / sums['weight'],
      **{name: sums[name] / sums['weight'] for name in ('error', 'mse', 'mae')},
      **experts.metrics(sums),
    }


make = Task
