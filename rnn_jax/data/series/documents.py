"""Series as documents: each a few numbers about it, its readings, covariates.

start, begin    int64: the time of the first reading, and the place of the
                first one that is forecast; 0: each is
N, T, M, C      int64: the shapes of readings and covariates
readings        NxT, float64; NaN is missing
covariates      MxC, the same
static          the texts of static columns, JSON
"""

import json
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax.data.series import panel as panel_lib

NUMBERS = 6  # int64


class Content(NamedTuple):
  """What a document has."""

  start: int
  begin: int
  values_NxT: np.ndarray
  covariates_MxC: np.ndarray
  static: tuple[str, ...]

  def series(self, name: str) -> panel_lib.Series:
    """Returns the series that this is of."""
    return panel_lib.Series(
      name, self.start, self.values_NxT, self.covariates_MxC, self.static
    )


class InMemorySeries:
  """The documents.Reader of series in memory.

  Args:
    series: one or more.
    begins: of each, the place of the first reading that is forecast.
    files: that they are from.
    scales: the spec of the tokenizer.Scales of the run.
  """

  labels = None
  difficulties = None

  def __init__(
    self,
    series: Iterable[panel_lib.Series],
    begins: Iterable[int],
    files: Iterable[str] = (),
    scales: Mapping[str, Any] | None = None,
  ) -> None:
    self.series = [*series]
    self.begins = [*begins]
    self.files = tuple(files)
    self.scales = scales
    self.names = tuple(each.name for each in self.series)
    self.sizes = np.array(
      [
        8 * (NUMBERS + x.values_NxT.size + x.covariates_MxC.size)
        + len(_static(x))
        if len(x.values_NxT)
        else 0
        for x in self.series
      ],
      np.int64,
    )

  def read(self, unit: int, start: int, stop: int) -> bytes:
    own = self.series[unit]
    arrays = own.values_NxT, own.covariates_MxC
    shapes = [size for x in arrays for size in x.shape]
    header = np.array([own.start, self.begins[unit], *shapes], '<i8')
    numbers = np.concatenate([x.ravel() for x in arrays]).astype('<f8')
    document = header.tobytes() + numbers.tobytes() + _static(own)
    return document[start:stop]


def content(document: bytes) -> Content:
  """Returns what a document has."""
  start, begin, N, T, M, C = np.frombuffer(document, '<i8', NUMBERS).tolist()
  numbers = np.frombuffer(document, '<f8', N * T + M * C, offset=8 * NUMBERS)
  static = document[8 * (NUMBERS + len(numbers)) :]
  return Content(
    start,
    begin,
    numbers[: N * T].reshape(N, T),
    numbers[N * T :].reshape(M, C),
    tuple(json.loads(static)) if static else (),
  )


def _static(series):
  return json.dumps(series.static).encode() if series.static else b''
