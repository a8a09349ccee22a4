"""Forecasts of series: of the readings after a stream's last one.

Quantiles are float64. What a stream has read is in series_streams.py.
"""

import functools
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.inference import forecast_rows
from rnn_jax.inference import paths
from rnn_jax.inference import series_streams
from rnn_jax.inference import series_widths
from rnn_jax.system import activity

TIMES = 4096  # forecasts whose times are kept as text; many begin together


class Sampling(NamedTuple):
  """How many paths of readings are drawn; 0: none."""

  samples: int = 0
  seed: int = 0


class Forecaster(series_streams.StreamReader):
  """A trained forecaster, see series_streams.StreamReader."""

  def check(
    self,
    horizon: int,
    levels: Sequence[float],
    sampling: Sampling = Sampling(),  # noqa: B008, frozen
  ) -> None:
    """Checks what is asked of a forecast.

    Raises:
      InputError: a horizon beyond the trained one, of what isn't drawn; levels
        that the head doesn't know; or paths that can't be drawn.
    """
    if sampling.samples:
      self._check_sampling(horizon, sampling)
    elif not 1 <= horizon <= self.horizon:
      longer = ', or draw paths of any length by samples=100'
      errors.refuse(
        'horizon',
        horizon,
        f'this model forecasts {self.horizon} readings: give 1 to '
        f'{self.horizon}, or train with a larger data.horizon'
        f'{longer if self._head.draws else ""}',
      )
    given = tuple(levels)
    if not given or list(given) != sorted({*given}):
      errors.refuse('quantiles', given, 'give ascending levels')
    low, high = 0.0, 1.0
    if self._head.kind == 'quantiles':
      low, high = self.levels[0], self.levels[-1]
      if not low <= given[0] <= given[-1] <= high:
        errors.refuse(
          'quantiles',
          given,
          f'this model has learned {self.levels}: give levels from {low} to '
          f"{high}, or train with task.head='student_t'",
        )
    elif not low < given[0] <= given[-1] < high:
      errors.refuse('quantiles', given, 'give levels between 0 and 1')

  def _check_sampling(self, horizon, sampling):
    samples, seed = sampling
    if self.targets:
      errors.refuse(
        'samples',
        samples,
        f'paths of data.targets={self.targets!r} are not drawn: leave it out',
      )
    if not self._head.draws:
      errors.refuse(
        'samples',
        samples,
        f'task.head={self._head.kind!r} has no distribution to draw from: '
        "train with 'student_t' or 'negative_binomial'",
      )
    if self._data.observed:
      errors.refuse(
        'samples',
        samples,
        f'a drawn reading has no data.observed={self._data.observed!r}: train '
        'without them',
      )
    for key, value, least, most in (
      ('samples', samples, 1, paths.MAX_PATHS),
      ('seed', seed, 0, 2**64 - 1),
      ('horizon', horizon, 1, paths.MAX_HORIZON),
    ):
      if not least <= value <= most:
        errors.refuse(key, value, f'give {least} to {most:,}')

  def forecast(
    self,
    stream: series_streams.Stream,
    horizon: int | None = None,
    levels: Sequence[float] | None = None,
    sampling: Sampling = Sampling(),  # noqa: B008, frozen
  ) -> forecast_rows.Forecast:
    """Returns the forecast after a stream's last reading.

    Args:
      stream: the series so far.
      horizon: readings; None: all that the model forecasts.
      levels: of the quantiles; None: those that the run was trained with.
      sampling: the paths that are drawn.

    Raises:
      InputError: as `check`, or a covariate of these times isn't known.
    """
    if not sampling.samples:
      return self.forecast_all([stream], horizon, levels)[0]
    horizon, levels = self._asked(horizon, levels, sampling)
    self.covariates.check_known(stream, horizon)
    paths_PxH = self._paths(stream, horizon, sampling)
    *quantiles, point_H = np.quantile(
      paths_PxH, (*levels, 0.5), 0, method='inverted_cdf'
    )
    return forecast_rows.Forecast(
      stream.name,
      self._times([stream], horizon)[0],
      levels,
      np.stack(quantiles, 1),
      point_H,
      paths_PxH,
    )

  def forecast_all(
    self,
    streams: Sequence[series_streams.Stream],
    horizon: int | None = None,
    levels: Sequence[float] | None = None,
  ) -> list[forecast_rows.Forecast]:
    """Returns the forecast after each stream's last reading, as of `forecast`.

    Raises:
      InputError: as `forecast`.
    """
    horizon, levels = self._asked(horizon, levels)
    for stream in streams if self.covariates.like is not None else ():
      self.covariates.check_known(stream, horizon)
    if not streams:
      return []
    numbers_BxOxH = series_streams.stacked(
      [stream.numbers_OxH for stream in streams]
    )
    shape, T = numbers_BxOxH.shape[:2], len(self._data.readings)
    numbers_BxOxTxH = numbers_BxOxH.reshape(*shape, T, -1)[..., :horizon]
    numbers_BxHxO = numbers_BxOxTxH.reshape(*shape, -1).swapaxes(1, 2)
    quantiles_BxHxQ = self._head.quantiles(numbers_BxHxO, levels)
    point_BxH = self._head.points(numbers_BxHxO)
    if streams[0].scale.log:
      quantiles_BxHxQ, point_BxH = np.exp(quantiles_BxHxQ), np.exp(point_BxH)
    targets = tuple(name for name in self.targets for _ in range(horizon))
    return [
      forecast_rows.Forecast(
        stream.name,
        times * T,
        levels,
        quantiles_HxQ,
        point_H,
        targets=targets,
      )
      for stream, times, quantiles_HxQ, point_H in zip(
        streams,
        self._times(streams, horizon),
        quantiles_BxHxQ,
        point_BxH,
        strict=True,
      )
    ]

  def _asked(self, horizon, levels, sampling=Sampling()):  # noqa: B008, frozen
    """Returns (horizon, levels), which the model can forecast."""
    horizon = self.horizon if horizon is None else horizon
    levels = self.levels if levels is None else tuple(levels)
    self.check(horizon, levels, sampling)
    return horizon, levels

  def _times(self, streams, horizon):
    """Returns the times of the readings after each stream's, as text."""
    start_B = np.array([stream.start for stream in streams], np.int64)
    count_B = np.array([stream.count for stream in streams])
    if self.frequency.is_even:  # many streams have their next reading then
      start_B, count_B = self.frequency.times(start_B, count_B), 0 * count_B
    places = zip(start_B.tolist(), count_B.tolist(), strict=True)
    return [[*_times(self.frequency, *place, horizon)] for place in places]

  def _paths(self, stream, horizon, sampling):
    """Returns drawn readings, PxH."""
    start, stop = stream.count - 1, stream.count + horizon - 1
    calendar_LxF = self.frequency.calendar(
      stream.start, np.arange(start, stop) + 1
    )
    # Steps without covariates have arrays of no width.
    known_LxHxK = inputs_LxC = np.zeros((horizon, 0, 0), np.float32)
    categories_S = np.zeros(0, np.int32)
    if (own := stream.covariates) is not None:
      known_LxHxK, inputs_LxC, _ = self.covariates.steps(own, start, stop)
      categories_S = own.categories_S
    scaled_PxH = paths.draw(
      self.reader,
      stream.carry,
      paths.Ahead(calendar_LxF, known_LxHxK, inputs_LxC, categories_S),
      (sampling.seed, stream.name, sampling.samples),
    )
    return stream.scale.invert(scaled_PxH)

  def forecasts(
    self,
    series: Iterable[panel_lib.Series],
    horizon: int | None = None,
    levels: Sequence[float] | None = None,
    sampling: Sampling = Sampling(),  # noqa: B008, frozen
  ) -> list[forecast_rows.Forecast]:
    """Returns the forecast of each series; the arguments are those."""
    series = [*series]
    made = []
    with activity.doing('forecasting', len(series), 'series') as done:
      for first in range(0, len(series), series_widths.WIDTHS[-1]):
        part = series[first : first + series_widths.WIDTHS[-1]]
        made += [
          self.forecast(stream, horizon, levels, sampling)
          for stream in self.begin_all(part)
        ]
        done(len(part))
    return made


@functools.lru_cache(TIMES)
def _times(frequency, start, count, horizon):
  return panel_lib.times(frequency, start, count + np.arange(horizon))
