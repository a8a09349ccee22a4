"""Embeddings of character n-grams, against sums written out."""

import jax
import numpy as np

from rnn_jax.models import character_ngrams

SPELLED = b'Ab ', b'ab', b'serfdom ', b'x' * 40, b''
BUCKETS, D = 97, 5


def fnv(text):
  value = 2166136261
  for byte in text.encode():
    value = (value ^ byte) * 16777619 % 2**32
  return value % BUCKETS


def written_out(word):
  return [word[i : i + n] for n in (3, 4, 5) for i in range(len(word) - n + 1)][
    : character_ngrams.MOST
  ]


def test_rows_are_hashes_of_ngrams():
  rows = character_ngrams.rows(SPELLED, BUCKETS)
  for own, word in zip(rows, ('<ab>', '<ab>', '<serfdom>'), strict=False):
    expected = [fnv(x) for x in written_out(word)]
    assert [*own[: len(expected)]] == expected
    assert np.all(own[len(expected) :] == -1)
  assert np.all(rows[3] >= 0) and np.all(rows[4] == -1)


def test_an_embedding_is_the_sum_over_the_root_of_the_number():
  module = character_ngrams.CharacterNgrams(SPELLED, BUCKETS, D, 0.5)
  tokens = np.array([[0, 2, 4], [1, 3, 3]], np.int32)
  variables = module.init(jax.random.key(0), tokens)
  table = np.float64(variables['params']['embedding'])
  assert table.shape == (BUCKETS, D)
  made = jax.jit(module.apply)(variables, tokens)
  for row, ids in enumerate(tokens):
    for step, token in enumerate(ids):
      own = [
        x for x in character_ngrams.rows(SPELLED, BUCKETS)[token] if x >= 0
      ]
      expected = table[own].sum(0) / max(len(own), 1) ** 0.5
      np.testing.assert_allclose(made[row, step], expected, atol=1e-5)
