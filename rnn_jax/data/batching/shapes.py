"""The shapes of a run's batches, from the config and a sample of rows."""

import functools
import types
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import difficulty
from rnn_jax.data.batching import shuffle

SAMPLE = 2000  # examples whose lengths the bucket lengths are derived from


def layout(data: config_lib.Data) -> types.ModuleType:
  """Returns the module of a layout, see `data/batching/layouts`."""
  return config_lib.load('data/batching/layouts', data.layout, 'data.layout')


def training_shapes(
  corpus: Any, data: config_lib.Data, seed: int, multiple: int
) -> tuple[tuple[int, int], ...]:
  """Returns the (rows, length) of training batches, by ascending length.

  With `data.shapes_vary` these are all possible shapes.

  Raises:
    InputError: a batch would have no row, or all rows are longer than the first
      length.
  """
  # If all batches have the same number of rows, the longest must fit.
  tallest = data.length if data.same_rows else 0
  return tuple(
    (_training_rows(data, tallest or length, multiple), length)
    for length in layout(data).lengths(corpus, data, seed)
  )


def heldout_shapes(
  corpus: Any, config: config_lib.Config, multiple: int
) -> tuple[tuple[int, int], ...]:
  """Returns shapes with the lengths of the training buckets that fit.

  Raises:
    InputError: a batch would have no row, or all rows are longer than the first
      length.
  """
  data = config.data.heldout(config.evaluate)
  trained = layout(data).lengths(
    corpus, config.data, config.train.seed_of_order
  )
  several = trained if len(trained) > 1 else ()
  lengths = {length for length in several if length < data.length}
  rows = _rows(data.batch_size, multiple, 'evaluate.batch_size')
  return tuple((rows, length) for length in sorted(lengths | {data.length}))


@functools.lru_cache(maxsize=4)
def sample(
  corpus: Any, data: config_lib.Data, seed: int
) -> tuple[np.ndarray, ...]:
  """Returns the ids of a sample of training rows, the same for a seed."""
  examples = corpus.examples(data, 'train', seed)
  places = map(np.ndarray.tolist, _sample(corpus, data, seed))
  return tuple(map(examples.read, *places))


def sample_lengths(corpus: Any, data: config_lib.Data, seed: int) -> list[int]:
  """Returns the number of tokens of each row of the sample.

  Where none has any, others do: that of a full row.
  """
  _, start, stop = _sample(corpus, data, seed)
  return (stop - start - 1).tolist() or [data.length]


def _sample(corpus, data, seed):
  """Returns (example, start, stop) of a sample of the rows of epoch 0."""
  windows = corpus.windows(data, 'train', seed)
  count = min(SAMPLE, len(windows))
  chosen = shuffle.permuted(np.arange(count), len(windows), shuffle.key(seed))
  example, start, stop = windows.at(chosen)
  filled = stop - start > 1
  return example[filled], start[filled], stop[filled]


@functools.lru_cache(maxsize=4)
def unigram(
  corpus: Any, data: config_lib.Data, seed: int
) -> difficulty.Unigram:
  """Returns the unigram model of the sample."""
  return difficulty.Unigram(sample(corpus, data, seed), corpus.tokenizer.size)


def _training_rows(data, length, multiple):
  if data.tokens_per_batch:
    rows = data.tokens_per_batch // length
    return _rows(rows, multiple, 'data.tokens_per_batch')
  if data.batch_size % multiple:
    raise errors.InputError(
      f'data.batch_size={data.batch_size}: not divisible by devices that split '
      f'rows x accumulation = {multiple}: give a multiple, or another mesh'
    )
  return _rows(data.batch_size, multiple, 'data.batch_size')


def _rows(rows, multiple, key):
  if rows < multiple:
    raise errors.InputError(
      f'{key} gives {rows} row(s), fewer than devices x accumulation = '
      f'{multiple}: give more'
    )
  return rows // multiple * multiple
