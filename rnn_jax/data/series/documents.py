"""Series as documents: each a few numbers about it, and its readings.

start, begin    int64: the time of the first reading, and the place of the
                first one that is forecast; 0: each is
readings        float64; NaN is missing
"""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax.data.series import panel as panel_lib

HEADER = 16  # bytes


class Content(NamedTuple):
  """What a document has."""

  start: int
  begin: int
  values_N: np.ndarray


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
        HEADER + 8 * len(x.values_N) if len(x.values_N) else 0
        for x in self.series
      ],
      np.int64,
    )

  def read(self, unit: int, start: int, stop: int) -> bytes:
    _, begin, values_N = self.series[unit]
    header = np.array([begin, self.begins[unit]], '<i8').tobytes()
    return (header + values_N.astype('<f8').tobytes())[start:stop]


def content(document: bytes) -> Content:
  """Returns what a document has."""
  start, begin = np.frombuffer(document, '<i8', 2).tolist()
  return Content(start, begin, np.frombuffer(document, '<f8', offset=HEADER))
