"""What a forecaster is given of a series besides its readings.

A stream keeps the covariates of its last season, and those that are known ahead
of the readings to come: as many rows more as a forecast has readings. See
data/series/covariates.py.
"""

import types
from collections.abc import Mapping
from typing import Any
from typing import Protocol

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import covariates as covariates_lib
from rnn_jax.data.series import fields
from rnn_jax.data.series import frequency as frequency_lib
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.data.series import scaling
from rnn_jax.data.series import tables

Given = Mapping[str, Any]  # numbers by column
NONE: Given = types.MappingProxyType({})


class Named(Protocol):
  """Of panel.Series and series_streams.Stream."""

  @property
  def name(self) -> str: ...
  @property
  def start(self) -> int: ...


class Stream(Named, Protocol):
  """Of series_streams.Stream."""

  @property
  def count(self) -> int: ...
  @property
  def covariates(self) -> covariates_lib.Scaled | None: ...


class Covariates:
  """Those of a run.

  Args:
    data: section `data` of its config.
    scales: the tokenizer_lib.Scales of the run.
  """

  def __init__(self, data: Any, scales: Any) -> None:
    self._data, self._scales = data, scales
    self._columns = covariates_lib.columns(data)
    self._frequency = frequency_lib.Frequency.parse(data.frequency)

  @property
  def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The known and the observed columns."""
    return self._data.known, self._data.observed

  @property
  def described(self) -> dict[str, list[str]]:
    """The columns of each kind that clients give, those of kinds with some."""
    data = self._data
    static = [x for x in data.static if x != data.id]
    kinds = {'known': data.known, 'observed': data.observed, 'static': static}
    return {kind: [*names] for kind, names in kinds.items() if names}

  @property
  def like(self) -> covariates_lib.Scaled | None:
    """What `begin` returns, of no series."""
    if self._columns is None:
      return None
    scales = (scaling.Scale(),) * len(self._columns.moving)
    nothing = np.zeros(0)
    return covariates_lib.Scaled(0, nothing, scales, nothing, nothing)

  def future_options(self, key: str) -> tables.Options:
    """Returns how a table of the future is read.

    Raises:
      InputError: nothing is known ahead; names `key`.
    """
    if not self._data.known:
      raise errors.InputError(
        f'{key}: nothing is known ahead to this run, data.known=(): leave it '
        'out'
      )
    options: tables.Options = self._data.table_options('')
    return options._replace(future=True)

  def split(self, panel: panel_lib.Panel) -> panel_lib.Panel:
    """Returns series that end with their last reading, if anything is known.

    Raises:
      InputError: a known column lacks a number after it.
    """
    if not self._data.known:
      return panel
    panel = panel_lib.up_to_last_reading(panel)
    for series in panel.series:
      count = len(series.values_NxT)
      ahead_MxK = series.covariates_MxC[count:, : len(self._data.known)]
      for row, column in np.argwhere(np.isnan(ahead_MxK))[:1]:
        self._lacks(series, count + row, self._data.known[column])
    return panel

  def texts(self, name: str, given: Given) -> tuple[str, ...]:
    """Returns the texts of static columns that a client gives of a series.

    Args:
      name: of the series, which may be a static column.
      given: by column, a number or a text; None: it is missing.

    Raises:
      InputError: the columns aren't the run's.
    """
    named = {x: name for x in self._data.static if x == self._data.id}
    wanted = tuple(x for x in self._data.static if x not in named)
    if {*given} != {*wanted}:
      errors.refuse(
        'static',
        [*given],
        f'this run has data.static={wanted!r}: give each'
        if wanted
        else 'this run has no data.static: leave it out',
      )
    values = {**given, **named}
    return tuple(fields.text(values[x]) for x in self._data.static)

  def begin(self, series: panel_lib.Series) -> covariates_lib.Scaled | None:
    """Returns the covariates of a series; None: the run has none.

    Raises:
      InputError: it lacks them.
    """
    if self._columns is None:
      return None
    widths = series.covariates_MxC.shape[1], len(series.static)
    if widths != (len(self._columns.moving), len(self._data.static)):
      raise errors.InputError(
        f'series {series.name!r} has no covariates, and the run has the '
        f'columns {self._columns.moving + self._data.static!r}: give them'
      )
    count = len(series.values_NxT)
    return covariates_lib.scaled(series, count, self._scales, self._data)

  def observe(
    self, stream: Stream, known: Given, observed: Given
  ) -> covariates_lib.Scaled | None:
    """Returns a stream's covariates with those that its next reading has.

    Args:
      stream: the stream.
      known: by column, numbers of the times after those whose are known.
      observed: by column, the number at the reading; NaN: it is missing.

    Raises:
      InputError: the columns aren't the run's, or as `extended`.
    """
    data = self._data
    known_MxK = covariates_lib.numbers('known', data.known, known)
    observed_1xO = covariates_lib.numbers(
      'observed', data.observed, observed, 1
    )
    return self.extended(stream, known_MxK, observed_1xO)

  def extended(
    self, stream: Stream, known_MxK: np.ndarray, observed_NxO: np.ndarray
  ) -> covariates_lib.Scaled | None:
    """Returns a stream's covariates with those of its next N readings.

    Args:
      stream: the stream.
      known_MxK: of the times after those whose are known.
      observed_NxO: at each reading; NaN is missing.

    Raises:
      InputError: what is known doesn't reach the last reading.
    """
    own = stream.covariates
    if own is None or not self._data.known + self._data.observed:
      return own
    stop = stream.count + len(observed_NxO)
    if not self._data.known:
      known_MxK = np.zeros((max(stop - own.stop, 0), 0))
    missing = np.full((len(known_MxK), len(self._data.observed)), np.nan)
    own = own.extended(np.concatenate([known_MxK, missing], 1))
    self.check_reach(stream, own.stop, stop)
    return own.observed(stream.count, observed_NxO)

  def steps(
    self, own: covariates_lib.Scaled, start: int, stop: int
  ) -> covariates_lib.Steps:
    """Returns what the steps of places from `start` to before `stop` know."""
    return own.steps((start, stop), len(self._data.known), self._data)

  def check_known(self, stream: Stream, horizon: int, added: int = 0) -> None:
    """Checks that what is known ahead reaches as far as a forecast.

    Args:
      stream: the stream.
      horizon: readings of the forecast.
      added: readings that come before it.

    Raises:
      InputError: it doesn't.
    """
    own = stream.covariates
    if own is not None and self._data.known:
      count = stream.count + added
      self.check_reach(stream, max(own.stop, count), count + horizon)

  def check_reach(self, series: Named, stop: int, wanted: int) -> None:
    """Checks that known columns, which end at `stop`, reach a place.

    Raises:
      InputError: they don't.
    """
    if self._data.known and stop < wanted:
      self._lacks(series, stop, self._data.known[0])

  def reach(self, stream: Stream) -> int:
    """Returns how many readings can be forecast by what is known of them."""
    own = stream.covariates
    if own is None or not self._data.known:
      return self._data.horizon
    return min(max(own.stop - stream.count, 0), self._data.horizon)

  def _lacks(self, series, place, column):
    (time,) = panel_lib.times(self._frequency, series.start, np.array([place]))
    raise errors.InputError(
      f'series {series.name!r} has no {column!r} at {time}, which data.known '
      'says is known ahead: give it in a row without a reading, or in a table '
      'of the future (--future, future=)'
    )


def joined(
  raws: list[tables.Raw], future: list[tables.Raw]
) -> list[tables.Raw]:
  """Returns series with what is known of the times after them.

  Raises:
    InputError: the future is of other series, or begins too early.
  """
  if [raw.name for raw in future] == ['']:
    if len(raws) > 1:
      raise errors.InputError(
        f'{future[0].file}: it has no column of names, and {raws[0].file} has '
        f'{len(raws)} series: add the column'
      )
    future = [future[0]._replace(name=raws[0].name)]
  return panel_lib.joined([raws, future])
