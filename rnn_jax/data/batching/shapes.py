"""The shapes of a run's batches, from the config and a sample of rows."""

import functools
import types
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import grain
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import loader
from rnn_jax.data.batching import rarity
from rnn_jax.data.batching import rows as rows_lib

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
  trained = layout(data).lengths(corpus, config.data, config.train.seed)
  lengths = {length for length in trained if length < data.length}
  rows = _rows(data.batch_size, multiple, 'evaluate.batch_size')
  return tuple((rows, length) for length in sorted(lengths | {data.length}))


class Simulated(NamedTuple):
  """Batches of rows of given lengths.

  Attributes:
    batches: their number.
    real: tokens in them.
    total: the same with padding.
  """

  batches: int
  real: int
  total: int

  @property
  def efficiency(self) -> float:
    """The fraction of real tokens."""
    return self.real / max(self.total, 1)


def simulate(
  lengths: Sequence[int],
  data: config_lib.Data,
  shapes: tuple[tuple[int, int], ...],
  seed: int,
) -> Simulated:
  """Makes batches of rows of these lengths, which hold as many tokens.

  The rows repeat: an end, which pads, would count for more than in a run.
  """
  rows = [np.zeros(length + 1, np.int32) for length in lengths]
  examples = loader.Loader(grain.MapDataset.source(rows).repeat(), 0)
  batches = layout(data).make(examples, shapes, data, seed)
  count, real, total = 0, 0, 0
  while real < sum(lengths):
    weights = next(batches).weights_BxL
    count, real = count + 1, real + int(weights.sum())
    total += weights.size
  return Simulated(count, real, total)


def batches_per_epoch(
  corpus: Any, data: config_lib.Data, seed: int, multiple: int
) -> float:
  """Returns how many batches an epoch fills, on average.

  It is exact for images, and as good as the sample of rows for text.

  Raises:
    InputError: as `training_shapes`.
  """
  examples = len(corpus.windows(data, 'train', seed))
  shapes = training_shapes(corpus, data, seed, multiple)
  if data.holds_images:
    return examples / shapes[0][0]
  lengths = sample_lengths(corpus, data, seed)
  # Of few rows several epochs: the last batches, of a pool, aren't typical.
  repeats = max(SAMPLE // max(len(lengths), 1), 1)
  made = simulate(lengths * repeats, data, shapes, seed)
  tokens = sum(lengths) * examples / max(min(SAMPLE, examples), 1)
  return tokens * made.batches / max(made.real, 1)


@functools.lru_cache(maxsize=4)
def sample(
  corpus: Any, data: config_lib.Data, seed: int
) -> tuple[np.ndarray, ...]:
  """Returns the ids of a sample of training rows, the same for a seed."""
  examples = corpus.examples(data, 'train', seed)
  windows = corpus.windows(data, 'train', seed)
  count = min(SAMPLE, len(windows))
  chosen = np.random.default_rng(seed).choice(len(windows), count, False)
  places = zip(*(x.tolist() for x in windows.at(chosen)), strict=True)
  return tuple(
    row
    for example, start, stop in places
    for row in rows_lib.cut(examples.read(example, start, stop), data.length)
  )


def sample_lengths(corpus: Any, data: config_lib.Data, seed: int) -> list[int]:
  """Returns the number of tokens of each row of the sample.

  Where all of its examples are empty, others aren't: that of a full row.
  """
  lengths = [len(row) - 1 for row in sample(corpus, data, seed)]
  return lengths or [data.length]


@functools.lru_cache(maxsize=4)
def unigram(corpus: Any, data: config_lib.Data, seed: int) -> rarity.Unigram:
  """Returns the unigram model of the sample."""
  return rarity.Unigram(sample(corpus, data, seed), corpus.tokenizer.size)


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
