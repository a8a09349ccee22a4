"""Readings that a run takes: numbers that its scales can hold.

A reading is a number, NaN where it is missing, and of several targets one of
each. Counts are whole numbers from 0 on, and a run with data.log takes positive
numbers only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import scaling

Reading = float | Sequence[float]  # of several targets
LARGEST = 1e15  # of a scaled reading; sums of squares are finite in float32


class Readings:
  """What a run takes.

  Args:
    data: section `data` of its config.
  """

  def __init__(self, data: Any) -> None:
    self._counts = data.scaling == 'counts'
    self._targets: tuple[str, ...] = data.targets

  def numbers(self, given: Sequence[Reading]) -> np.ndarray:
    """Returns N readings as numbers, NxT, float64.

    Raises:
      InputError: one isn't a number, or a list of one for each target.
    """
    try:
      values_NxT = np.asarray(given, np.float64)
    except (TypeError, ValueError):
      values_NxT = np.zeros(())
    count = len(self._targets)
    if not count and values_NxT.ndim == 1:
      return values_NxT[:, None]
    if not count or values_NxT.shape[1:] != (count,):
      for reading in given if len(given) > 1 else ():
        self.numbers([reading])  # names the one that is wrong
      wanted = f'{count} numbers, of {self._targets!r}'
      errors.refuse(
        'reading',
        given,
        f'give {wanted if count else "a number"}, or nan if it is missing',
      )
    return values_NxT

  def wrong(self, values_NxT: np.ndarray, scale: scaling.Scale) -> np.ndarray:
    """Returns which readings a scale, or one for each row, can't hold."""
    with np.errstate(all='ignore'):  # of what is refused
      scaled_NxT = scale.apply(values_NxT)
      wrong_NxT = ~(np.abs(scaled_NxT) <= LARGEST) & ~np.isnan(values_NxT)
      if self._counts:
        wrong_NxT |= (values_NxT < 0) | (values_NxT % 1 > 0)
    return wrong_NxT

  def check(
    self, values_NxT: np.ndarray, scale: scaling.Scale, name: str
  ) -> None:
    """Checks the readings of a series.

    Raises:
      InputError: one is infinite, has no logarithm, is no count or is too
        large; names the series.
    """
    wrong_NxT = self.wrong(values_NxT, scale)
    if not wrong_NxT.any():
      return
    value = float(values_NxT[wrong_NxT][0])
    remedy = f"it is more than {LARGEST:g} times the series' scale: correct it"
    if np.isinf(value):
      remedy = 'give a finite number, or nan if it is missing'
    elif self._counts and (value < 0 or value % 1):
      remedy = 'give a count, a whole number from 0 on'
    elif scale.log and value <= 0:
      remedy = 'give a positive number: the run has data.log=True'
    errors.refuse('reading', value, f'series {name!r}: {remedy}')
