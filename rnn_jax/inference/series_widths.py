"""Widths at which rows of series may be read: those with the same bits.

A series has to have the same bits by itself and among hundreds, and a stream
those of its history. A program has so many rows, its width, and reads one
reading or several. Before one is used, drawn readings are read by it, by the
next narrower one and one by one: where XLA's own kernels add in another order,
as on a GPU, it isn't used.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rnn_jax.inference import series_steps
from rnn_jax.models import series as series_lib

WIDTHS = 1, 16, 128  # B
COMPARED = 3  # readings of each row
Run = Callable[
  [series_steps.Carry, series_steps.Given], tuple[series_steps.Carry, Any]
]


class Widths:
  """See the module's docstring.

  Args:
    model: the forecaster.
    run: its program, of a carry and what the rows read.
    fresh: returns so many rows of which nothing was read.
  """

  def __init__(
    self,
    model: series_lib.Forecaster,
    run: Run,
    fresh: Callable[[int], series_steps.Carry],
  ) -> None:
    self._model, self._run, self._fresh = model, run, fresh
    self._agree: dict[int, bool] = {WIDTHS[0]: True}

  def widest(self, most: int) -> int:
    """Returns the widest usable width up to `most`, at least 1."""
    usable = 1
    for width in WIDTHS:
      if width > most:
        break
      if width not in self._agree:
        self._agree[width] = self._compare(usable, width)
      if self._agree[width]:
        usable = width
    return usable

  @functools.cached_property
  def reads_one(self) -> bool:
    """Whether a program of one reading has the bits of that of several."""
    given = self._samples(1)
    return self._together(given) == self._one_by_one(given)

  def _compare(self, narrow, wide):
    """Returns whether rows have the same bits at two widths."""
    given = self._samples(wide)
    made = self._together(given)
    if self.reads_one and self._one_by_one(given) != made:
      return False
    firsts = range(0, wide, narrow)
    parts = (self._together(_some(given, n, n + narrow)) for n in firsts)
    return made == [row for part in parts for row in part]

  def _samples(self, width):
    """Returns COMPARED drawn readings of so many rows."""
    rng = np.random.default_rng(0)

    def sample(like):
      if like.dtype == np.int32:
        return like
      return rng.normal(size=like.shape).astype(np.float32)

    given = jax.tree.map(
      sample, series_steps.nothing(self._model, series_steps.AT_ONCE, width)
    )
    return given._replace(count_B=np.full(width, COMPARED, np.int32))

  def _together(self, given):
    """Returns the bits of each row that reads its readings in a call."""
    return self._bits(*self._run(self._fresh(len(given.count_B)), given))

  def _one_by_one(self, given):
    """Returns them of rows that read one reading in each call."""
    carry, result = self._fresh(len(given.count_B)), None
    for n in range(COMPARED):
      carry, result = self._run(carry, _one(given, n))
    return self._bits(carry, result)

  def _bits(self, carry, result):
    leaves = jax.tree.leaves(jax.device_get((carry, result)))
    return [[x[n].tobytes() for x in leaves] for n in range(len(leaves[0]))]


def _some(given, start, stop):
  """Returns the rows from one to before another."""
  own = slice(start, stop)
  readings_NxBxT, calendar_NxBxF, count_B, covariates = given
  if covariates is not None:
    known_BxHxK, inputs_NxBxC, categories_BxS = covariates
    covariates = series_steps.Covariates(
      known_BxHxK[own], inputs_NxBxC[:, own], categories_BxS[own]
    )
  return series_steps.Given(
    readings_NxBxT[:, own], calendar_NxBxF[:, own], count_B[own], covariates
  )


def _one(given, n):
  """Returns the n-th reading of each row."""
  own = slice(n, n + 1)
  covariates = given.covariates
  if covariates is not None:
    inputs_NxBxC = covariates.inputs_NxBxC[own]
    covariates = covariates._replace(inputs_NxBxC=inputs_NxBxC)
  return series_steps.Given(
    given.readings_NxBxT[own],
    given.calendar_NxBxF[own],
    np.ones_like(given.count_B),
    covariates,
  )
