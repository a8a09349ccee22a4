"""Writing ids, images or readings into the rows of a batch.

A model reads `ids[:-1]` and predicts `ids[1:]`. An id that it reads but doesn't
predict is stored as `~id`, which is negative; its weight is 0.
"""

from typing import NamedTuple

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.images import images

PADDING = -1  # in `starts`, where a row ends before its last step


class Steps(NamedTuple):
  """Steps of a series, see batch.Batch; weights_L is 0 without a forecast.

  The last three are of a series with covariates.
  """

  readings_LxW: np.ndarray
  calendar_LxF: np.ndarray
  future_LxH: np.ndarray
  weights_L: np.ndarray
  known_LxHxK: np.ndarray | None = None
  inputs_LxC: np.ndarray | None = None
  categories_LxS: np.ndarray | None = None


def predicted(ids: np.ndarray | Steps) -> int:
  """Returns how many ids of an example are predicted, or steps forecast."""
  if isinstance(ids, Steps):
    return int(np.count_nonzero(ids.weights_L))
  return int(np.count_nonzero(ids[1:] >= 0))


def blank(rows: int, length: int) -> batch_lib.Batch:
  """Returns a batch of padding."""
  shape = rows, length
  return batch_lib.Batch(
    np.zeros(shape, np.int32),
    np.zeros(shape, np.int32),
    np.zeros(shape, np.float32),
    np.zeros(shape, np.int32),
  )


def write(batch: batch_lib.Batch, row: int, at: int, ids: np.ndarray) -> int:
  """Writes ids into a row from step `at` on. Returns the step after them."""
  stop = at + len(ids) - 1
  plain = np.maximum(ids, ~ids)
  batch.tokens_BxL[row, at:stop] = plain[:-1]
  batch.targets_BxL[row, at:stop] = plain[1:]
  batch.weights_BxL[row, at:stop] = ids[1:] >= 0
  return stop


def blank_images(rows: int, image: config_lib.Image) -> batch_lib.Batch:
  """Returns a batch of padding."""
  return batch_lib.Batch(
    None,
    None,
    np.zeros((rows, 1), np.float32),
    None,
    np.zeros(rows, np.int32),
    np.zeros((rows, *images.shape(image)), np.uint8),
  )


def write_image(
  batch: batch_lib.Batch, row: int, at: int, ids: np.ndarray
) -> None:
  """Writes an image, its pixels and its class, into a row of one step."""
  del at
  image_BxHxWxC = batch.image_BxHxWxC
  image_BxHxWxC[row] = ids[:-1].reshape(image_BxHxWxC.shape[1:])
  batch.label_B[row] = ids[-1]
  batch.weights_BxL[row] = 1


def blank_series(
  rows: int,
  length: int,
  widths: tuple[int, int, int],
  besides: tuple[int, int, int, int] | None = None,
) -> batch_lib.Batch:
  """Returns a batch of padding; `widths` are W, F and H.

  `besides` are H, K, C and S, of a series with covariates; H is the horizon.
  """
  shape = rows, length
  readings, calendar, future = (
    np.full((*shape, width), fill, np.float32)
    for width, fill in zip(widths, (np.nan, 0, np.nan), strict=True)
  )
  batch = batch_lib.Batch(
    None,
    None,
    np.zeros(shape, np.float32),
    np.zeros(shape, np.int32),
    readings_BxLxW=readings,
    calendar_BxLxF=calendar,
    future_BxLxH=future,
  )
  if besides is None:
    return batch
  H, K, C, S = besides
  return batch._replace(
    known_BxLxHxK=np.full((*shape, H, K), np.nan, np.float32),
    inputs_BxLxC=np.full((*shape, C), np.nan, np.float32),
    categories_BxLxS=np.zeros((*shape, S), np.int32),
  )


def write_series(
  batch: batch_lib.Batch, row: int, at: int, steps: Steps
) -> None:
  """Writes steps of a series into a row from step `at` on."""
  stop = at + len(steps.weights_L)
  batch.readings_BxLxW[row, at:stop] = steps.readings_LxW
  batch.calendar_BxLxF[row, at:stop] = steps.calendar_LxF
  batch.future_BxLxH[row, at:stop] = steps.future_LxH
  batch.weights_BxL[row, at:stop] = steps.weights_L
  if steps.known_LxHxK is not None:
    batch.known_BxLxHxK[row, at:stop] = steps.known_LxHxK
    batch.inputs_BxLxC[row, at:stop] = steps.inputs_LxC
    batch.categories_BxLxS[row, at:stop] = steps.categories_LxS
