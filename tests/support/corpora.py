"""Small corpora for the tests of rnn_jax.data."""

import collections
import dataclasses

import numpy as np

from rnn_jax import config
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.text import documents

LAYOUTS = ('buckets', 'padded', 'sorted', 'packed', 'stream')
UNIQUE = [chr(0x4E00 + n) for n in range(900)]
SIZES = (1, 2, 5, 17, 40, 64, 90, 200, 3, 130, 48, 300)  # characters, sum 900


def in_memory(*texts):
  return documents.whole(documents.InMemory(texts))


def unique_texts():
  """Documents in which no character occurs twice."""
  ends = np.cumsum(SIZES)
  return [
    ''.join(UNIQUE[end - size : end])
    for size, end in zip(SIZES, ends, strict=True)
  ]


def configure(evaluate=(), train=(), **data):
  return dataclasses.replace(
    config.parse({}),
    data=config.section('data', **data),
    evaluate=config.Evaluate(**dict(evaluate)),
    train=config.Train(**dict(train)),
  )


def unique_corpus(folder, **options):
  """Returns corpus and config of `unique_texts`, held out back to front."""
  for split, order in (('train', 1), ('validation', -1)):
    (folder / split).mkdir()
    for n, text in enumerate(unique_texts()):
      (folder / split / f'{n:02}.txt').write_text(text[::order])
  settings = {
    'source': 'text',
    'path': str(folder / 'train' / '*.txt'),
    'validation_path': str(folder / 'validation' / '*.txt'),
    'splits': (100, 0, 0),
    'tokenizer': 'characters',
    'length': 24,
    'batch_size': 4,
    'workers': 0,
    'evaluate': {'batch_size': 3},
  }
  settings.update(options)
  if settings.get('layout') == 'stream':
    settings['segment_tokens'] = 100
  settings['evaluate'] = dict(settings['evaluate'])
  cfg = configure(**settings)
  return corpus_lib.Corpus.open(cfg, folder / 'work'), cfg


def take(iterator, count):
  return [next(iterator) for _ in range(count)]


def count_targets(batches):
  """Counts each predicted token; padding doesn't count."""
  counts = collections.Counter()
  for batch in batches:
    counts.update(batch.targets_BxL[batch.weights_BxL > 0].tolist())
  return counts


def assert_same(batches, others):
  assert len(batches) == len(others)
  for batch, other in zip(batches, others, strict=True):
    for a, b in zip(batch[:4], other[:4], strict=True):
      np.testing.assert_array_equal(a, b)
