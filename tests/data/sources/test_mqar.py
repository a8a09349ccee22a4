"""Multi-query associative recall: each key is asked for, at some distance."""

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import mqar


def test_labels_are_the_values_of_the_keys():
  options = mqar.Options(length=64, pairs=8, vocabulary=100)
  gaps = []
  for n in range(60):
    text = mqar.make(np.random.default_rng(n), options)
    inputs, labels = text.split('=')
    assert len(inputs) == len(labels) == 64
    given = dict(zip(inputs[:16:2], inputs[1:16:2], strict=True))
    asked = [t for t, label in enumerate(labels) if label != '.']
    assert min(asked) >= 16 and all(t % 2 == 0 for t in asked)
    assert {inputs[t]: labels[t] for t in asked} == given
    assert len(given) == len(asked) == 8
    half = chr(mqar.FIRST + 50)
    assert all(key < half <= value for key, value in given.items())
    gaps += [(t - 16) // 2 for t in asked]
  # Of a power law: half of the keys come again within a third of the places.
  assert np.median(gaps) < 8 and max(gaps) == 23


def test_one_symbol_may_fill_the_places_between_keys():
  options = mqar.Options(length=64, pairs=8, vocabulary=18, filler='one')
  for n in range(20):
    text = mqar.make(np.random.default_rng(n), options)
    inputs, labels = text.split('=')
    filler = chr(mqar.FIRST)
    assert filler not in inputs[:16]
    between = zip(inputs[16:], labels[16:], strict=True)
    assert all(
      (symbol == filler) == (label == '.') for symbol, label in between
    )


def test_pairs_without_room_are_refused():
  raw = config_lib.default(task='tagging', source='mqar')
  raw.data.tokenizer = 'characters'
  raw.data.mqar.update(length=16, pairs=5)
  with pytest.raises(errors.InputError, match='data.mqar.pairs=5: .* give 4'):
    config_lib.parse(raw)
  raw.data.mqar.update(length=64, pairs=8, vocabulary=16, filler='one')
  with pytest.raises(errors.InputError, match='data.mqar.pairs=8: .* give 7'):
    config_lib.parse(raw)
