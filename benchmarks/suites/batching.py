"""Each way to make batches, on each data set: padding, shapes, tokens a second.

See benchmarks.datasets for how data sets are given.
"""

from benchmarks import cases as cases_lib
from benchmarks import datasets

CHOICES = {
  'one length': {'buckets': 1},
  'padded': {'layout': 'padded'},
  'sorted, pool 4': {'layout': 'sorted', 'pool': 4},
  'sorted, pool 16': {'layout': 'sorted'},
  'sorted, pool 16, multiples of 64': {
    'layout': 'sorted',
    'length_multiple': 64,
  },
  'buckets, quantile 4': {},
  'buckets, quantile 8': {'buckets': 8},
  'buckets, balanced 4': {'bucketing': 'balanced'},
  'buckets, balanced 8': {'bucketing': 'balanced', 'buckets': 8},
  'buckets, least padding 4': {'bucketing': 'least_padding'},
  'buckets, least padding 8': {'bucketing': 'least_padding', 'buckets': 8},
  'buckets, powers': {'bucketing': 'powers'},
  'buckets, given': {'boundaries': (16, 32, 64, 128, 256)},
  'buckets, least padding 4, each split by rarity': {
    'bucketing': 'least_padding',
    'rarity_buckets': 2,
  },
  'buckets, least padding 8, rows for 1 GiB': {
    'bucketing': 'least_padding',
    'buckets': 8,
    'tokens_per_batch': 0,
    'memory_gib': 1.0,
  },
  'buckets, least padding 8, easy rows first': {
    'bucketing': 'least_padding',
    'buckets': 8,
    'curriculum': 'length',
  },
  'buckets, least padding 8, growing: 16, 64, whole': {
    'bucketing': 'least_padding',
    'buckets': 8,
    'growth': (16, 64),
  },
  'packed, first fit': {'layout': 'packed'},
  'packed, best fit': {'layout': 'packed', 'fit': 'best'},
  'stream': {'layout': 'stream'},
}


def cases(quick):
  """Every choice on every data set, with one budget of tokens a batch.

  A row is as long as the longest example, so that none is cut. Three epochs are
  those of the curriculum's stages, and of the lengths that grow.
  """
  tokens, limit = (2048, 100) if quick else (8192, 0)
  sizes = {
    'tokenizer': 'bpe',
    'vocabulary': 300 if quick else 4096,
    'tokens_per_batch': tokens,
  }
  listed = [
    cases_lib.Case(
      f'{name}: {choice}',
      'batching.epoch',
      {'name': name, 'data': {**sizes, **data}, 'limit': limit},
      3,
    )
    for name in datasets.names()
    for choice, data in CHOICES.items()
  ]
  return cases_lib.framed(listed, quick)
