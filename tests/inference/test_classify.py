"""Probabilities of classes: padding in a batch changes nothing."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import classify
from rnn_jax.models import classifier
from tests.support import tiny

VOCABULARY = 11


@pytest.fixture(scope='module')
def model_and_params():
  raw = tiny.raw_config('unused')
  raw.task.update(
    name='classification', pooling='concat', evidence=0.5, svm=1.0, pairs=16
  )
  raw.data.classes = ('bad', 'fair', 'good')
  raw.model.update(layers=1, block='plain', mlp_width=0)
  raw.cell.update(preset='simple', heads=1)
  model = classifier.from_config(
    config_lib.parse(raw), tokenizer_lib.Numbers(VOCABULARY)
  )
  state = model.apply({}, 1, method='init_state')
  tokens = np.zeros((1, 2), np.int32)
  init = jax.jit(lambda key: model.init(key, state, tokens)['params'])
  return model, init(jax.random.key(0))


def texts(lengths):
  rng = np.random.default_rng(0)
  return [rng.integers(0, VOCABULARY, n).astype(np.int32) for n in lengths]


def test_padded_texts_have_the_probabilities_of_single_ones(model_and_params):
  model, params = model_and_params
  # More than a batch of them, of lengths that are padded to two shapes.
  given = texts([5, 90, 1, 33] + [2, 3] * (classify.ROWS // 2))
  result = classify.calibrated(classify.logits(model, params, given), 1.0)
  assert result.shape == (len(given), 3) and result.dtype == np.float32
  np.testing.assert_allclose(result.sum(-1), 1, rtol=1e-5)
  chosen = (0, 1, 2, 4)
  # Padded at the end, which a causal model ignores.
  rows = np.zeros((len(chosen), 90), np.int32)
  for row, n in zip(rows, chosen, strict=True):
    row[: len(given[n])] = given[n]
  state = model.apply({}, len(rows), method='init_state')
  _, logits = jax.jit(model.apply)({'params': params}, state, rows)
  for n, logits_LxC in zip(chosen, np.asarray(logits), strict=True):
    single = jax.nn.softmax(logits_LxC[len(given[n]) - 1])
    np.testing.assert_allclose(result[n], single, rtol=1e-4, atol=1e-6)


def test_the_order_of_the_texts_is_kept(model_and_params):
  model, params = model_and_params
  given = texts([7, 3, 5])
  result = classify.logits(model, params, given)
  turned = classify.logits(model, params, given[::-1])
  np.testing.assert_array_equal(result, turned[::-1])
  assert len(np.unique(result.round(6), axis=0)) == 3
  assert classify.logits(model, params, []).shape == (0, 3)


def test_few_padded_lengths_whatever_the_texts():
  lengths = [classify.padded_length(n) for n in range(1, 5000)]
  assert all(n <= length for n, length in enumerate(lengths, 1))
  assert {*lengths} == {1 + 2**k for k in range(6, 14)}
  assert lengths == sorted(lengths)
  # At most half of the steps, or 64, are padding.
  assert all(length - n <= max(64, n) for n, length in enumerate(lengths, 1))


def test_programs_are_as_many_as_padded_lengths(model_and_params):
  model, params = model_and_params
  classify.text_logits.clear_cache()
  given = texts([1, 2, 33, 64, 65, 66, 67, 90, 100, 128, 129])
  together = classify.logits(model, params, given)
  assert classify.text_logits._cache_size() == 2
  for n in (0, 4, 5, 7, 10):
    alone = classify.logits(model, params, given[n : n + 1])
    np.testing.assert_array_equal(alone[0], together[n])
  assert classify.text_logits._cache_size() == 2
