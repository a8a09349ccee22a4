"""The classifier: a text in parts, texts in a row, evidence that adds up."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import classifier
from rnn_jax.ops import pooling
from tests.support import draws
from tests.support import tiny

pytestmark = pytest.mark.slow

VOCABULARY = 11
B, L = 3, 12


@functools.cache
def build(pooling_name, evidence):
  raw = tiny.raw_config('unused')
  raw.task.update(
    name='classification', pooling=pooling_name, evidence=evidence
  )
  raw.data.classes = ('bad', 'fair', 'good')
  raw.model.layers = 1
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  model = classifier.from_config(
    config_lib.parse(raw), tokenizer_lib.Numbers(VOCABULARY)
  )
  rng = np.random.default_rng(1)
  tokens = rng.integers(0, VOCABULARY, (B, L)).astype(np.int32)
  starts = np.zeros_like(tokens)
  starts[:, 0] = starts[1, 4] = starts[2, 7] = 1
  state = model.apply({}, B, method='init_state')
  variables = draws.parameters(model.init, state, tokens[:, :1], starts[:, :1])
  run = jax.jit(functools.partial(model.apply, variables))
  return run, variables['params'], state, tokens, starts


@pytest.mark.parametrize('name', pooling.KINDS)
def test_two_parts_of_a_text_equal_the_whole(name):
  run, _, state, tokens, starts = build(name, 0.5)
  _, whole = run(state, tokens, starts)
  assert whole.shape == (B, L, 3) and whole.dtype == np.float32
  half = L // 2  # within the second text of row 1
  middle, first = run(state, tokens[:, :half], starts[:, :half])
  _, second = run(middle, tokens[:, half:], starts[:, half:])
  joined = np.concatenate([first, second], axis=1)
  np.testing.assert_allclose(joined, whole, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize('name', pooling.KINDS)
def test_texts_in_one_row_are_independent(name):
  run, _, state, tokens, starts = build(name, 0.5)
  _, logits = run(state, tokens, starts)
  other = tokens.copy()
  other[1, :4] = (other[1, :4] + 1) % VOCABULARY
  _, changed = run(state, other, starts)
  np.testing.assert_allclose(changed[1, 4:], logits[1, 4:], rtol=2e-5)
  assert abs(changed[1, 3] - logits[1, 3]).max() > 1e-3


def test_evidence_is_the_sum_over_the_tokens():
  run, params, state, tokens, starts = build('mean', 0.5)
  _, logits = run(state, tokens, starts)
  table = np.asarray(params['table']['embedding'], np.float64)
  without, *_ = build('mean', 0.0)
  _, rest = without(state, tokens, starts)
  evidence_sum = np.zeros((B, L, 3))
  for row in range(B):
    for t in range(L):
      before = 0 if starts[row, t] else evidence_sum[row, t - 1]
      evidence_sum[row, t] = before + table[tokens[row, t]]
  np.testing.assert_allclose(logits - rest, evidence_sum, rtol=1e-4, atol=1e-4)


@functools.cache
def build_with_all():
  """With a linear SVM of openings and capitals, and with n-grams."""
  raw = tiny.raw_config('unused')
  raw.task.update(
    name='classification', svm=1.0, svm_share=0.6, openings=2, case=True
  )
  raw.task.update(pairs=64, ngrams=50)
  raw.data.classes = ('bad', 'fair', 'good')
  raw.model.layers = 1
  raw.recurrence.chunk_length = 4
  tokenizer = tokenizer_lib.Characters('ABCDEabcde')
  model = classifier.from_config(config_lib.parse(raw), tokenizer)
  rng = np.random.default_rng(1)
  tokens = rng.integers(0, tokenizer.size, (B, L)).astype(np.int32)
  starts = np.zeros_like(tokens)
  starts[:, 0] = starts[1, 4] = starts[2, 7] = 1
  state = model.apply({}, B, method='init_state')
  variables = draws.parameters(model.init, state, tokens[:, :1], starts[:, :1])
  return model, variables, state, tokens, starts


def test_parts_of_a_text_with_ngrams_and_openings_equal_the_whole():
  model, variables, state, tokens, starts = build_with_all()
  run = jax.jit(functools.partial(model.apply, variables))
  _, whole = run(state, tokens, starts)
  made = []
  for part in (slice(0, 1), slice(1, 6), slice(6, L)):
    state, logits = run(state, tokens[:, part], starts[:, part])
    made.append(logits)
  joined = np.concatenate(made, 1)
  np.testing.assert_allclose(joined, whole, rtol=2e-5, atol=2e-5)


def test_only_the_linear_svm_reads_capital_letters():
  model, variables, state, tokens, starts = build_with_all()
  read = functools.partial(model.apply, variables, method='features')
  run = jax.jit(lambda *args: read(*args)[2])
  other = np.where(tokens < 5, tokens + 5, tokens)  # A to a
  first, linear = run(state, tokens, starts)
  second, changed = run(state, other, starts)
  np.testing.assert_array_equal(first, second)
  assert abs(linear - changed).max() > 1e-3


def test_the_share_of_a_vote():
  rng = np.random.default_rng(0)
  each = tuple(np.float32(rng.normal(size=(2, 4, 3))) for _ in range(2))
  one, two = map(jax.nn.softmax, each)
  made = jax.nn.softmax(classifier.vote(each, 0.6))
  np.testing.assert_allclose(made, 0.4 * one + 0.6 * two, rtol=1e-5)
  alone = jax.nn.softmax(classifier.vote(each, 0.0))
  np.testing.assert_allclose(alone, one, rtol=1e-5)
