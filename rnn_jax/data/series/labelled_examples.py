"""Examples of labelled series: readings in, a target at a step.

    step t reads      readings t - W + 1 ... t of each channel, W = data.window
    and predicts      the target of the step; of a whole series, the last step

Readings are scaled (sources/labelled_series.py); missing ones, and those before
the series, are NaN. A step without a target has no weight. A target is a class
by its number, or a scaled number. Training may vary series (augmentation.py):
what is drawn for series n in an epoch depends only on (seed, epoch, n).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.series import augmentation
from rnn_jax.data.series import labelled
from rnn_jax.data.series import scaling
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base


class Labelled:
  """The examples of documents; see the module's docstring.

  Raises:
    InputError: a series with one label is longer than a row.
  """

  unfit = 0

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    self._data: Any = options.data
    self._given = []
    for n in range(len(documents)):
      given = labelled.content(documents.read(n))
      length = len(given.values_LxC)
      if options.length < length and not options.task.predicts_all:
        errors.refuse(
          'data.length',
          options.length,
          f'series {documents.name(n)!r} has {length} steps, and is read '
          'whole: give that or more',
        )
      targets_T = given.targets_T
      if self._data.labels == labelled.NUMBER:
        targets_T = target_scale(tokenizer, self._data).apply(targets_T)
      elif self._data.labels == labelled.STEPS:
        targets_T = np.where(targets_T < 0, np.nan, targets_T)
      scaled_LxC = scaled(given.values_LxC, tokenizer, self._data)
      self._given.append(labelled.Content(scaled_LxC, targets_T))
    warp, offset = self._data.warp, self._data.offset
    self._varied: tuple[int, augmentation.Augmentation] | None = None
    if options.seed is not None and (warp or offset):
      series = [given.values_LxC for given in self._given]
      varied = augmentation.Augmentation(warp, offset, series)
      self._varied = options.seed, varied
    # As of ids: one more than are read.
    lengths = [len(given.values_LxC) + 1 for given in self._given]
    self.lengths = np.array(lengths, np.int64)

  def read(
    self, n: int, start: int = 0, stop: int | None = None, epoch: int = 0
  ) -> rows_lib.Steps:
    """Returns the steps that read `start` to `stop` - 1 of example `n`."""
    stop = int(self.lengths[n]) if stop is None else stop
    values_LxC, targets_T = self._given[n]
    if self._varied is not None:
      seed, varied = self._varied
      rng = np.random.default_rng((seed, epoch, n))
      values_LxC, targets_T = varied.apply(values_LxC, targets_T, rng)
    length = len(values_LxC)
    targets_L = np.full(length, np.nan, np.float32)
    targets_L[length - len(targets_T) :] = targets_T
    own = slice(start, stop - 1)
    readings_LxW = windows(values_LxC, self._data.window)[own]
    return rows_lib.Steps(
      readings_LxW,
      np.zeros((len(readings_LxW), 0), np.float32),
      targets_L[own, None],
      (~np.isnan(targets_L[own])).astype(np.float32),
    )


def scaled(
  values_LxC: np.ndarray, scales: tokenizer_lib.Tokenizer, data: Any
) -> np.ndarray:
  """Returns the readings of a series, scaled, float32.

  Args:
    values_LxC: the readings.
    scales: of the run, a tokenizer.Scales.
    data: section `data` of the config.
  """
  run: Any = scales
  columns = []
  for channel, values_L in zip(data.channels, values_LxC.T, strict=True):
    kind = 'standard' if data.scaling == 'series' else 'none'
    scale = scaling.fit(kind, False, values_L)
    if kind == 'none':
      scale = kept_scale(run, channel)
    columns.append(scale.apply(values_L))
  return np.stack(columns, 1).astype(np.float32)


def target_scale(scales: tokenizer_lib.Tokenizer, data: Any) -> scaling.Scale:
  """Returns the scale of a number that is predicted; arguments as `scaled`."""
  return kept_scale(scales, data.label)


def kept_scale(scales: Any, name: str) -> scaling.Scale:
  """Returns the scale of a channel or a label that a run has kept."""
  loc, scale = scales.fitted[name]
  return scaling.Scale(loc, scale)


def windows(values_LxC: np.ndarray, window: int) -> np.ndarray:
  """Returns what each step reads, Lx(window C), NaN before the series."""
  before = np.full((window - 1, values_LxC.shape[1]), np.nan, np.float32)
  padded = np.concatenate([before, values_LxC])
  seen_LxCxW = np.lib.stride_tricks.sliding_window_view(padded, window, 0)
  return seen_LxCxW.reshape(len(values_LxC), -1)


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits: the source has done so.

  Raises:
    InputError: all training series are of one class, or have one number.
  """
  if config.data.labels == labelled.STEPS:
    return
  train = documents['train']
  targets = {
    float(labelled.content(train.read(n)).targets_T[0])
    for n in range(len(train))
  }
  if len(targets) < 2:
    one = (
      config.data.classes[int(targets.pop())]
      if config.data.classes
      else (targets.pop())
    )
    raise errors.InputError(
      f'data.label={config.data.label!r}: all {len(train)} training series '
      f'have {one!r}: there is nothing to learn'
    )
