"""How unlikely each reading is, by the forecast of the step before it.

    score = -log(2 min(F(y), 1 - F(y)))                  in nats

F is the forecast's distribution function: score 0 is the median, and of a
forecaster that is always right a score is above s with probability exp(-s). A
density would have units, and would be low at the center of a wide forecast.
Head 'student_t' has F; of 'quantiles' it is linear between levels, and beyond
the last ones a tail is exponential, by the two levels nearest to it.

    threshold = the k-th smallest of N scores, k = ceil((N + 1) (1 - rate))

of held-out readings without anomalies: a reading like them is above it with
probability `rate` at most, whatever the forecaster is worth (split conformal
prediction, Papadopoulos et al., "Inductive Confidence Machines for Regression",
2002). A missing reading has no score, nor has one whose window has too few
readings for a forecast to be trained on it; their score is NaN.
"""

import functools
import math
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import documents as series_lib
from rnn_jax.data.series import examples
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.data.series import tables
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.inference import series_steps
from rnn_jax.inference import series_streams
from rnn_jax.inference import series_widths
from rnn_jax.models import forecast_heads
from rnn_jax.models import series as model_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import activity

PyTree = Any
FALSE_ALARMS = 0.001  # of a reading
HELD_OUT = 'validation', 'test'
DISTRIBUTIONS = 'quantiles', 'student_t'  # heads that forecast one
FLAT = 1e-6  # the least scale of a tail, in widths of all levels


class Detector(series_streams.StreamReader):
  """A trained forecaster that scores readings.

  Args:
    bundle: of the run.

  Raises:
    InputError: the run forecasts nothing, or no distribution.
  """

  def __init__(self, bundle: bundle_lib.Bundle) -> None:
    super().__init__(bundle)
    check_head(self._head)
    if self.targets:
      errors.refuse(
        'data.targets',
        self.targets,
        'readings of one column are scored: train on each by itself',
      )

  def score(self, stream: series_streams.Stream, reading: float) -> float:
    """Returns the score of a stream's next reading.

    Raises:
      InputError: as `observe`.
    """
    self.covariates.check_known(stream, 1)
    value_1x1 = self.readings.numbers([reading])
    self.readings.check(value_1x1, stream.scale, stream.name)
    ((value,),) = value_1x1
    window_1x1xW = stream.carry.window_BxTxW
    if np.count_nonzero(~np.isnan(window_1x1xW)) < examples.least(self._data):
      return math.nan
    y = np.log(value) if stream.scale.log else value
    numbers_1xO = stream.numbers_OxH[None, :, 0]
    return float(scores(self._head, numbers_1xO, np.array([y]))[0])

  def scores(self, series: Sequence[panel_lib.Series]) -> list[np.ndarray]:
    """Returns the score of each of N readings of each series, float64.

    Series are read together; their scores don't depend on each other.

    Raises:
      InputError: a series has no reading, or as `observe`.
    """
    found, together = [], series_widths.WIDTHS[-1]
    with activity.doing('scoring', len(series), 'series') as done:
      for first in range(0, len(series), together):
        part = series[first : first + together]
        found += self._together(part)
        done(len(part))
    return found

  def _together(self, series):
    streams = [*map(self.empty, series)]
    rows = self.given(streams, [each.values_NxT for each in series])

    def program(order, place, carry, given):
      known = [self._known(streams[n], place) for n in order]
      known += known[:1] * (given.count_B.size - len(order))
      inputs = jax.device_put((carry, given, np.stack(known, 1)))
      return read(self.reader.model, self.reader.params, *inputs)

    carry = self.reader.join([stream.carry for stream in streams])
    numbers: list[list[np.ndarray]] = [[] for _ in series]
    for chunk in self.reader.chunks(program, carry, rows):
      made_NxBxO = np.float64(jax.device_get(chunk.result))
      for n, made_NxO in zip(
        chunk.order, made_NxBxO.swapaxes(0, 1), strict=False
      ):
        rest = rows.count_B[n] - chunk.place
        numbers[n].append(made_NxO[: max(rest, 0)])
    scaled = np.split(rows.readings_MxT[:, 0], np.cumsum(rows.count_B)[:-1])
    return [
      self._scores(each, scaled_N, np.concatenate(own))
      for each, scaled_N, own in zip(series, scaled, numbers, strict=True)
    ]

  def _scores(self, series, scaled_N, numbers_NxO):
    """Returns the scores of a series, from what `read` returned of it."""
    *numbers, loc_N, scale_N = numbers_NxO.T
    # The forecast of step n is of reading n + 1.
    y_N = (scaled_N[1:] - loc_N[:-1]) / scale_N[:-1]
    found_N = np.full(len(scaled_N), np.nan)
    found_N[1:] = scores(self._head, np.stack(numbers, 1)[:-1], y_N)
    found_N[1:][~self._trained(series.values_NxT[:, 0])] = np.nan
    return found_N

  def _known(self, stream, first):
    """Returns what AT_ONCE steps know of the readings after each, NxHxK."""
    stop = first + series_steps.AT_ONCE
    if (own := stream.covariates) is None:
      return np.zeros((series_steps.AT_ONCE, self.horizon, 0), np.float32)
    return self.covariates.steps(own, first, stop).known_LxHxK

  def _trained(self, values_N):
    """Returns whether the steps but the last have readings to forecast from."""
    W = self._data.window
    padded = np.pad(~np.isnan(values_N), (W, 0))
    seen_N = np.cumsum(padded)
    count_N = seen_N[W:] - seen_N[:-W]
    return count_N[:-1] >= examples.least(self._data)

  def of_documents(
    self, documents: Iterable[documents_lib.Documents]
  ) -> list[np.ndarray]:
    """Returns the scores of the held-out readings of documents."""
    series, begins = [], []
    for part in documents:
      for n in range(len(part)):
        given = series_lib.content(part.read(n))
        series.append(given.series(part.name(n)))
        begins.append(given.begin)
    return [
      scores_N[begin:]
      for scores_N, begin in zip(self.scores(series), begins, strict=True)
    ]


def check_head(head: forecast_heads.Head) -> None:
  """Checks that a head forecasts a distribution.

  Raises:
    InputError: it doesn't; names the key and the remedy.
  """
  if head.kind not in DISTRIBUTIONS:
    errors.refuse(
      'task.head',
      head.kind,
      'it forecasts no distribution, by which a reading could be unlikely: '
      f'train with one of {DISTRIBUTIONS}',
    )
  if head.kind == 'quantiles' and len(head.levels) < 2:
    errors.refuse(
      'task.quantiles', head.levels, 'train with two levels or more'
    )


def scores(
  head: forecast_heads.Head, numbers_NxO: np.ndarray, y_N: np.ndarray
) -> np.ndarray:
  """Returns the scores of readings, float64; NaN of a missing one.

  Args:
    head: what the numbers mean.
    numbers_NxO: the head's, in the units of the readings.
    y_N: the readings.
  """
  if head.kind == 'student_t':
    from scipy import stats  # takes long to import

    loc_N, scale_N, freedom_N = numbers_NxO.T
    tail_N = stats.t.logsf(np.abs(y_N - loc_N) / scale_N, freedom_N)
  else:
    tail_N = np.minimum(*_log_tails(head.levels, numbers_NxO, y_N))
  return np.maximum(-np.log(2) - tail_N, 0)


def _log_tails(levels, q_NxO, y_N):
  """Returns (log F(y), log(1 - F(y))) by quantiles, N each."""
  levels_O = np.array(levels)
  width_N = q_NxO[:, -1] - q_NxO[:, 0]
  least_N = FLAT * width_N + np.finfo(float).tiny
  known_N = np.nan_to_num(y_N)
  low_N = np.sum(q_NxO <= known_N[:, None], 1) - 1
  low_N = np.clip(low_N, 0, len(levels) - 2)
  rows = np.arange(len(y_N))
  q_N, next_N = q_NxO[rows, low_N], q_NxO[rows, low_N + 1]
  share_N = (known_N - q_N) / np.maximum(next_N - q_N, least_N)
  step_N = levels_O[low_N + 1] - levels_O[low_N]
  F_N = levels_O[low_N] + np.clip(share_N, 0, 1) * step_N

  def beyond(outer, inner, outside_N, p):
    """Returns log(tail) / log(p), p the probability beyond a level."""
    near_N = np.abs(q_NxO[:, outer] - q_NxO[:, inner])
    scale_N = np.maximum(near_N, least_N) / math.log(p[1] / p[0])
    return math.log(p[0]) - outside_N / scale_N

  above_N = known_N - q_NxO[:, -1]
  below_N = q_NxO[:, 0] - known_N
  upper = beyond(-1, -2, np.maximum(above_N, 0), 1 - levels_O[[-1, -2]])
  lower = beyond(0, 1, np.maximum(below_N, 0), levels_O[[0, 1]])
  left_N = np.where(below_N > 0, lower, np.log(F_N))
  right_N = np.where(above_N > 0, upper, np.log1p(-F_N))
  missing_N = np.isnan(y_N)
  return (
    np.where(missing_N, np.nan, left_N),
    np.where(missing_N, np.nan, right_N),
  )


def threshold(
  found: Iterable[np.ndarray], false_alarms: float, key: str = 'false_alarms'
) -> float:
  """Returns the score above which a reading is an anomaly.

  Args:
    found: scores of held-out readings; NaN is none.
    false_alarms: the wanted rate, of readings like these.
    key: what names it in messages.

  Raises:
    InputError: the rate isn't between 0 and 1, or there are too few scores for
      it.
  """
  if not 0 < false_alarms < 1:
    errors.refuse(key, false_alarms, 'give a rate between 0 and 1')
  scores_N = np.concatenate([np.zeros(0), *found])
  scores_N = np.sort(scores_N[~np.isnan(scores_N)])
  N = len(scores_N)
  k = math.ceil((N + 1) * (1 - false_alarms) - 1e-9)
  if k > N:
    needed = math.ceil(1 / false_alarms - 1 - 1e-9)
    errors.refuse(
      key,
      false_alarms,
      f'{needed:,} held-out readings or more show such a rate, and there are '
      f'{N:,}: give more of them, or {1 / (N + 1):.2g} or more',
    )
  return float(scores_N[k - 1])


def rows(
  panel: panel_lib.Panel,
  found: Iterable[np.ndarray],
  limit: float | None,
  names: tuple[str, str, str] = (tables.ID, tables.TIME, tables.VALUE),
) -> list[dict[str, Any]]:
  """Returns a row for each reading: its series, its time, its score.

  Args:
    panel: the series.
    found: the scores of each.
    limit: the threshold, for the column 'anomaly'; None: there is none.
    names: of the columns of the series, the time and the reading.
  """
  made = []
  for n, scores_N in enumerate(found):
    values_N = panel.series[n].values_NxT[:, 0]
    times = panel.times(n, np.arange(len(values_N)))
    for time, value, score in zip(times, values_N, scores_N, strict=True):
      columns = panel.series[n].name, time, _plain(value)
      row = dict(zip(names, columns, strict=True)) | {'score': _plain(score)}
      if limit is not None:
        row['anomaly'] = bool(score > limit)
      made.append(row)
  return made


def _plain(number):
  return None if np.isnan(number) else float(number)


@functools.partial(jax.jit, static_argnums=0)
def read(
  model: model_lib.Forecaster,
  params: PyTree,
  carry: series_steps.Carry,
  given: series_steps.Given,
  known_NxBxHxK: jax.Array,
) -> tuple[series_steps.Carry, jax.Array]:
  """Reads rows' readings, and forecasts the next one after each.

  Args:
    model: the forecaster.
    params: its parameters.
    carry: of B rows.
    given: their readings.
    known_NxBxHxK: what is known of the readings after each of them.

  Returns:
    (carry, NxBxO+2): of each step the head's numbers of the next reading, and
    the location and the scale that they are in.
  """

  def advance(n, inputs):
    carry, made = inputs
    carry = series_steps.step(model, params, carry, given, n)
    after = given
    if given.covariates is not None:
      after = given._replace(
        covariates=given.covariates._replace(known_BxHxK=known_NxBxHxK[n])
      )
    numbers_BxOxH, *units = series_steps.ahead(model, params, carry, after)
    numbers = [numbers_BxOxH[..., 0], *(x[:, :1] for x in units)]
    return carry, made.at[n].set(jnp.concatenate(numbers, 1))

  outputs = model.bind({}).numbers.outputs
  made = jnp.zeros((series_steps.AT_ONCE, len(given.count_B), outputs + 2))
  count = jnp.max(given.count_B)
  return jax.lax.fori_loop(0, count, advance, (carry, made))
