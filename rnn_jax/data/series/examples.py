"""Examples of forecasting: every step of a series forecasts the next readings.

    step t reads      readings t - W + 1 ... t     W = data.window
    and forecasts     readings t + 1 ... t + H     H = data.horizon

"Forked horizons" (Wen et al., "A Multi-Horizon Quantile Recurrent Forecaster",
2017): one pass over a row trains on every cut of it. Readings are scaled
(scaling.py); missing ones, and those outside of the series, are NaN. A step has
the weight of the part of its horizon that is observed. It has none where its
window has too few readings to tell their spread: half a season, and LEAST.

Of a held-out document one step forecasts, or with more horizons held out every
H-th: those of the origins. With data.origins_every they are that many steps
apart, as long as a whole horizon follows. The example is what fits a row up to
the last one. What a step knows besides is in covariates.py.

Of T targets a step reads and forecasts all, one after the other in W and H.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.series import covariates as covariates_lib
from rnn_jax.data.series import documents as series_lib
from rnn_jax.data.series import frequency as frequency_lib
from rnn_jax.data.series import scaling
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base

LEAST = 8  # readings of a window, or half of a shorter one
windows = np.lib.stride_tricks.sliding_window_view


class Forked:
  """The examples of documents; see the module's docstring."""

  unfit = 0

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    self._data: Any = options.data
    scales: Any = tokenizer  # tokenizer_lib.Scales
    self._frequency = frequency_lib.Frequency.parse(self._data.frequency)
    self._given, self._firsts, lengths = [], [], []
    self._covariates: list[covariates_lib.Scaled | None] = []
    has_covariates = covariates_lib.columns(self._data) is not None
    for n in range(len(documents)):
      given = series_lib.content(documents.read(n))
      end = len(given.values_NxT)
      first = 0
      if given.begin:
        end = origins(given, *_spacing(self._data))[-1] + 1
        first = max(end - options.length, 0)
      history_NxT = given.values_NxT[: given.begin or None]
      scale = scaling.of(scales, documents.name(n), history_NxT)
      scaled_NxT = scale.apply(given.values_NxT).astype(np.float32)
      self._given.append(given._replace(values_NxT=scaled_NxT))
      own = None
      if has_covariates:
        own = covariates_lib.scaled(
          given.series(documents.name(n)), len(history_NxT), scales, self._data
        )
      self._covariates.append(own)
      self._firsts.append(first)
      # As of ids: the last reading of a part that trains isn't read.
      lengths.append(end - first + bool(given.begin))
    self.lengths = np.array(lengths, np.int64)

  def read(
    self, n: int, start: int = 0, stop: int | None = None, epoch: int = 0
  ) -> rows_lib.Steps:
    """Returns the steps that read `start` to `stop` - 1 of example `n`."""
    del epoch
    stop = int(self.lengths[n]) if stop is None else stop
    first = self._firsts[n]
    places = first + start, first + stop - 1
    return steps(self._given[n], places, self._data, self._covariates[n])


def origins(given: series_lib.Content, horizon: int, every: int = 0) -> range:
  """Returns the places of the steps that forecast in a held-out document.

  Args:
    given: the document.
    horizon: readings that each forecasts.
    every: readings from one to the next, all of which forecast a whole horizon
      but the first; 0: a horizon.
  """
  first, count = given.begin - 1, len(given.values_NxT)
  if not every:
    return range(first, count - 1, horizon)
  return range(first, max(count - horizon, first + 1), every)


def _spacing(data):
  return data.horizon, data.origins_every


def least(data: Any) -> int:
  """Returns how many readings a window needs, of section `data`."""
  W = data.window
  return max(min(data.season, W) // 2, min(LEAST, W // 2))


def steps(
  given: series_lib.Content,
  places: tuple[int, int],
  data: Any,
  covariates: covariates_lib.Scaled | None = None,
) -> rows_lib.Steps:
  """Returns the steps of a series from one place to before another.

  Args:
    given: the series; readings are scaled.
    places: of the first step, and the one after the last.
    data: section `data` of the config.
    covariates: of the series, if it has any.
  """
  start, stop = places
  length, T = stop - start, given.values_NxT.shape[1]
  W, H = data.window, data.horizon
  padded = np.full((W - 1 + length + H, T), np.nan, np.float32)
  low, high = max(start - W + 1, 0), min(stop + H, len(given.values_NxT))
  at = low - (start - W + 1)
  padded[at : at + max(high - low, 0)] = given.values_NxT[low:high]
  seen_LxTxW = windows(padded[: W - 1 + length], W, 0)
  seen_LxW = seen_LxTxW.reshape(length, T * W)
  future_LxH = windows(padded[W:], H, 0).reshape(length, T * H)
  frequency = frequency_lib.Frequency.parse(data.frequency)
  calendar_LxF = frequency.calendar(given.start, np.arange(start + 1, stop + 1))
  weights_L = np.mean(~np.isnan(future_LxH), 1, dtype=np.float32)
  if given.begin:
    chosen = np.isin(np.arange(start, stop), origins(given, *_spacing(data)))
    weights_L *= chosen
  else:
    observed_L = np.sum(~np.isnan(seen_LxW), 1)
    weights_L *= observed_L >= T * least(data)
  made = rows_lib.Steps(seen_LxW, calendar_LxF, future_LxH, weights_L)
  if covariates is None:
    return made
  known = covariates.steps(places, len(data.known), data)
  return made._replace(**known._asdict())


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits: the source has done so."""
  del documents, config
