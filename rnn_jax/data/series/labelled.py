"""Series with labels: what tables become, and what documents hold.

A series has L steps of C channels; NaN is a missing reading. Its label is, by
`data.labels`,

    'class'    one of data.classes, of the whole series
    'number'   a number, of the whole series
    'steps'    one of data.classes for each step; -1: a step without a label

A document is L, C, the readings and the targets: one, or one for each step.
Classes are targets by their number.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

KINDS = CLASS, NUMBER, STEPS = 'class', 'number', 'steps'
HEADER = 16  # bytes
UNLABELLED = -1


class Series(NamedTuple):
  """A series of a table.

  Attributes:
    name: of the series.
    values_LxC: float64; NaN is missing.
    labels: texts, one, or one for each step; '': it has none. None: the table
      has no column of labels.
    times: of the steps, as its table has them; None: it has none.
    where: it is in which file and line.
  """

  name: str
  values_LxC: np.ndarray
  labels: Sequence[str] | None
  times: Sequence[Any] | None
  where: str


class Content(NamedTuple):
  """What a document has; targets_T are one, or one for each of the L steps."""

  values_LxC: np.ndarray
  targets_T: np.ndarray


class InMemory:
  """The documents.Reader of labelled series in memory.

  Args:
    series: the series, in the order of `targets`.
    targets: of each, float64: see Content.
    classified: whether a series has one target, which is a class.
    files: that they are from.
    scales: the spec of the tokenizer.Scales of the run.
  """

  difficulties = None

  def __init__(
    self,
    series: Iterable[Series],
    targets: Iterable[np.ndarray],
    classified: bool,
    files: Iterable[str] = (),
    scales: Mapping[str, Any] | None = None,
  ) -> None:
    self.series, self.targets = [*series], [*targets]
    self.files = tuple(files)
    self.scales = scales
    self.names = tuple(each.name for each in self.series)
    self.labels = (
      np.array([each[0] for each in self.targets], np.int64)
      if classified
      else None
    )
    self.sizes = np.array(
      [
        HEADER + 8 * (each.values_LxC.size + len(targets_T))
        for each, targets_T in zip(self.series, self.targets, strict=True)
      ],
      np.int64,
    )

  def read(self, unit: int, start: int, stop: int) -> bytes:
    values_LxC = self.series[unit].values_LxC
    header = np.array(values_LxC.shape, '<i8').tobytes()
    numbers = values_LxC.ravel(), self.targets[unit]
    body = b''.join(x.astype('<f8').tobytes() for x in numbers)
    return (header + body)[start:stop]


def content(document: bytes) -> Content:
  """Returns what a document has."""
  length, channels = np.frombuffer(document, '<i8', 2).tolist()
  numbers = np.frombuffer(document, '<f8', offset=HEADER)
  values, targets_T = np.split(numbers, [length * channels])
  return Content(values.reshape(length, channels), targets_T)
