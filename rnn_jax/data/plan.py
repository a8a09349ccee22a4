"""What batches a run makes: their shapes, from the config and a sample."""

import dataclasses
import functools

import numpy as np

from rnn_jax import errors
from rnn_jax.data import bucketing
from rnn_jax.data import rarity
from rnn_jax.data import rows as rows_lib

SAMPLE = 2000  # pieces whose lengths the buckets are taken from
POOLED = ('padded', 'sorted')


def training_shapes(
  corpus, data, seed: int, multiple: int
) -> tuple[tuple[int, int], ...]:
  """Returns the (rows, length) of training batches, lengths rising.

  With the layouts POOLED these are all that there can be.

  Raises:
    InputError: a batch would have no row, or no row is as short as the first
      of `data.boundaries`.
  """
  # Where all batches have the same rows, the longest must fit.
  tallest = data.length if data.layout == 'padded' else 0
  return tuple(
    (_training_rows(data, tallest or length, multiple), length)
    for length in _training_lengths(corpus, data, seed)
  )


def _training_lengths(corpus, data, seed):
  if data.layout in POOLED:
    return data.padded_lengths
  if data.layout == 'buckets':
    return _boundaries(corpus, data, seed)
  return (data.length,)


def heldout_data(config):
  """Returns section `data` as it is for a held-out pass."""
  evaluate = config.evaluate
  return dataclasses.replace(
    config.data,
    length=evaluate.length or config.data.length,
    batch_size=evaluate.batch_size,
    stretch=evaluate.stretch or config.data.stretch,
  )


def heldout_shapes(
  corpus, config, multiple: int
) -> tuple[tuple[int, int], ...]:
  """Returns shapes with the lengths of the training buckets that fit.

  Raises:
    InputError: no row is as short as the first of `data.boundaries`.
  """
  data = heldout_data(config)
  trained = _training_lengths(corpus, config.data, config.train.seed)
  lengths = {length for length in trained if length < data.length}
  rows = _rows(data.batch_size, multiple, 'evaluate.batch_size')
  return tuple((rows, length) for length in sorted(lengths | {data.length}))


@functools.lru_cache(maxsize=4)
def sample(corpus, data, seed: int) -> tuple[np.ndarray, ...]:
  """Returns the ids of a sample of training rows, the same for a seed."""
  pieces = corpus.examples(data, 'train', seed)
  count = min(SAMPLE, len(pieces))
  chosen = np.random.default_rng(seed).choice(len(pieces), count, False)
  return tuple(
    row
    for piece in chosen
    for row in rows_lib.cut(pieces.make(int(piece), 0), data.length)
  )


def sample_lengths(corpus, data, seed: int) -> list[int]:
  """Returns how many tokens each row of the sample predicts."""
  return [len(row) - 1 for row in sample(corpus, data, seed)]


@functools.lru_cache(maxsize=4)
def unigram(corpus, data, seed: int) -> rarity.Unigram:
  """Returns the unigram model of the sample."""
  return rarity.Unigram(sample(corpus, data, seed), corpus.tokenizer.size)


def split(corpus, data, seed: int) -> rarity.Split | None:
  """Returns how the rows of a bucket are split by rarity, if they are."""
  if data.layout != 'buckets' or data.rarity_buckets == 1:
    return None
  return rarity.Split(
    unigram(corpus, data, seed),
    sample(corpus, data, seed),
    _boundaries(corpus, data, seed),
    data.rarity_buckets,
  )


def _training_rows(data, length, multiple):
  if data.tokens_per_batch:
    rows = data.tokens_per_batch // length
    return _rows(rows, multiple, 'data.tokens_per_batch')
  if data.batch_size % multiple:
    raise errors.InputError(
      f'data.batch_size={data.batch_size}: devices that share rows x '
      f'accumulation = {multiple} must divide it: give a multiple, or another '
      'mesh'
    )
  return _rows(data.batch_size, multiple, 'data.batch_size')


def _rows(rows, multiple, key):
  if rows < multiple:
    raise errors.InputError(
      f'{key} gives {rows} row(s), which devices x accumulation = {multiple} '
      f'cannot share: give more'
    )
  return rows // multiple * multiple


@functools.lru_cache(maxsize=4)
def _boundaries(corpus, data, seed):
  """Returns the bucket lengths that are given, or that suit the sample."""
  if data.bucketing == 'powers' and not data.boundaries:
    return bucketing.power_boundaries(data.length)
  lengths = sample_lengths(corpus, data, seed)
  if not data.boundaries:
    choose = {
      'quantile': bucketing.quantile_boundaries,
      'balanced': bucketing.balanced_boundaries,
      'least_padding': bucketing.least_padding_boundaries,
    }[data.bucketing]
    return choose(lengths, data.buckets, data.length)
  if data.boundaries[0] < min(lengths, default=1):
    _check_first(corpus, data, seed)
  return data.boundaries


def _check_first(corpus, data, seed):
  """Raises InputError if all rows, not the sample's alone, are longer."""
  pieces, first = corpus.examples(data, 'train', seed), data.boundaries[0]
  shortest = data.length
  for piece in range(len(pieces)):
    for row in rows_lib.cut(pieces.make(piece, 0), data.length):
      shortest = min(shortest, len(row) - 1)
    if shortest <= first:
      return
  raise errors.InputError(
    f'data.boundaries={data.boundaries!r}: the first one is below the shortest '
    f'of all rows, {shortest} tokens: begin with {shortest} or more'
  )
