"""The linear SVM against float64 NumPy: its margins, and its minimum."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax.models import text_svm

V, N, C = 11, 7, 3
SIZES = text_svm.Sizes(V, N, C)


def row_of_pair(before, token):
  return V + (before % 65521 * 31337 + token) % N


def margins(table, ids):
  """Margins LxC after each token of a text, one token at a time."""
  made, total, before = [], np.zeros(C), V
  for t, token in enumerate(map(int, ids)):
    total = total + table[token] + table[row_of_pair(before, token)]
    made.append(total / np.sqrt(2 * (t + 1)) + table[-1])
    before = token
  return np.array(made)


def test_logits_of_texts_that_share_a_row_in_two_parts():
  rng = np.random.default_rng(0)
  table = rng.normal(size=(V + N + 1, C))
  texts = [rng.integers(0, V, n).astype(np.int32) for n in (5, 3, 6)]
  tokens = np.concatenate(texts)[None]
  starts = np.zeros_like(tokens)
  starts[0, np.cumsum([0, 5, 3])] = 1
  machine = text_svm.Svm(SIZES)
  variables = {'params': {'table': np.float32(table)}}
  run = jax.jit(functools.partial(machine.apply, variables))
  state, first = run(machine.init_state(1), tokens[:, :7], starts[:, :7])
  _, second = run(state, tokens[:, 7:], starts[:, 7:])
  expected = 4 * np.concatenate([margins(table, ids) for ids in texts])
  made = np.concatenate([first, second], 1)[0]
  np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


SPELLED = (
  b'Ab ',
  b'ab ',
  b'AB ',
  b'7 ',
  b'? ',
  b'c ',
  b'A ',
  b'Cd',
  b'e',
  b'f',
)
LOWER = (0, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10)
SHAPES = (
  *(text_svm.CAPITAL, text_svm.LOWER, text_svm.CAPITALS, text_svm.NUMBER),
  *(text_svm.OTHER, text_svm.LOWER, text_svm.CAPITAL, text_svm.CAPITAL),
  *(text_svm.LOWER, text_svm.LOWER, text_svm.EMPTY),
)
# Openings of one and of two words, each with the boundary before.
MORE = SIZES._replace(openings=2, case=text_svm.case_of((*SPELLED, b'')))


def rows_of_text(ids):
  """The rows of each token of a text, written out."""

  def row(*parts):
    mixed = parts[0]
    for part in parts[1:]:
      mixed = mixed % 65521 * 31337 + part
    return V + mixed % N

  lower, made = [LOWER[x] for x in ids], []
  for t, token in enumerate(lower):
    before = lower[t - 1] if t else V
    own = [token, row(before, token)]
    own.append(row(V + 1, SHAPES[ids[t]]))
    own.append(row(V + 2, before, SHAPES[ids[t]]))
    for k in (2, 3):
      if t >= k:
        own.append(row(V + 1 + k, *lower[:k], token))
    made.append(own)
  return made


def test_the_case_of_tokens():
  case = text_svm.case_of((*SPELLED, b''))
  assert case.lower == LOWER and case.shapes == SHAPES


@pytest.mark.parametrize('cuts', ((), (7,), (1, 2, 9), tuple(range(1, 17))))
def test_openings_and_capitals_of_texts_in_parts(cuts):
  rng = np.random.default_rng(3)
  table = rng.normal(size=(V + N + 1, C))
  lengths = 5, 1, 2, 6, 3
  texts = [rng.integers(0, V, n).astype(np.int32) for n in lengths]
  tokens = np.concatenate(texts)[None]
  starts = np.zeros_like(tokens)
  starts[0, np.cumsum((0, *lengths[:-1]))] = 1
  machine = text_svm.Svm(MORE)
  variables = {'params': {'table': np.float32(table)}}
  run = jax.jit(functools.partial(machine.apply, variables))
  state, made = machine.init_state(1), []
  for part in zip(
    np.split(tokens, cuts, 1), np.split(starts, cuts, 1), strict=True
  ):
    state, logits = run(state, *part)
    made.append(logits[0])
  expected = []
  for ids in texts:
    total, number = 0.0, 0
    for rows in rows_of_text(ids):
      total, number = total + table[rows].sum(0), number + len(rows)
      expected.append(4 * (total / np.sqrt(number) + table[-1]))
  np.testing.assert_allclose(
    np.concatenate(made), expected, rtol=1e-5, atol=1e-5
  )


def test_the_fit_with_openings_and_capitals_is_the_minimum():
  rng = np.random.default_rng(1)
  texts = [rng.integers(0, V, n).astype(np.int32) for n in (4, 6, 3, 5, 7, 2)]
  labels, c = np.array([0, 1, 2, 0, 1, 2]), 2.0
  table = text_svm.fit(texts, labels, MORE, c)
  X = np.zeros((len(texts), V + N + 1))
  for n, ids in enumerate(texts):
    rows = sum(rows_of_text(ids), [])
    np.add.at(X[n], rows, len(rows) ** -0.5)
    assert MORE.number(len(ids)) == len(rows)
  X[:, -1] = 1
  for k in range(C):
    y = np.where(labels == k, 1, -1)
    short = np.maximum(0, 1 - y * (X @ np.float64(table[:, k])))
    gradient = table[:, k] - 2 * c * X.T @ (y * short)
    np.testing.assert_allclose(gradient, 0, atol=2e-3)


def test_the_largest_token_has_a_bucket():
  largest = np.int32(2**24 - 1)
  sizes = text_svm.Sizes(2**24, 2**16, 2)
  made = sizes.bucket(np.array([largest]), largest)
  exact = 2**24 + (int(largest) % 65521 * 31337 + int(largest)) % 2**16
  assert made == exact


@pytest.mark.parametrize('weights', ((), (0.5, 1.0, 3.0)))
def test_the_fit_is_the_minimum(weights):
  """The gradient of the loss of a class against all others is zero there."""
  rng = np.random.default_rng(1)
  texts = [rng.integers(0, V, n).astype(np.int32) for n in (4, 6, 3, 5, 7, 2)]
  labels, c = np.array([0, 1, 2, 0, 1, 2]), 2.0
  table = text_svm.fit(texts, labels, SIZES, c, weights)
  assert table.dtype == np.float32
  X = np.zeros((len(texts), V + N + 1))
  for n, ids in enumerate(texts):
    for before, token in zip([V, *ids[:-1]], ids, strict=True):
      X[n, token] += 1
      X[n, row_of_pair(int(before), int(token))] += 1
    X[n] /= np.sqrt(2 * len(ids))
  X[:, -1] = 1
  for k in range(C):
    y = np.where(labels == k, 1, -1)
    short = np.maximum(0, 1 - y * (X @ np.float64(table[:, k])))
    # The weight is that of the class; of the rest, 1.
    own = np.where(y > 0, (weights or (1,) * C)[k], 1)
    gradient = table[:, k] - 2 * c * X.T @ (own * y * short)
    np.testing.assert_allclose(gradient, 0, atol=2e-3)


def test_two_classes_and_one_without_texts():
  texts = [np.array(ids, np.int32) for ids in ([1, 2], [3, 4], [1, 2, 5])]
  table = text_svm.fit(texts, np.array([0, 2, 0]), SIZES, 1.0)
  for ids, label in zip(texts, (0, 2, 0), strict=True):
    last = margins(table, ids)[-1]
    assert last.argmax() == label and last[1] == -1
    np.testing.assert_allclose(last[0], -last[2], atol=1e-6)
