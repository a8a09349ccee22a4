"""Borders of chunks."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax import errors
from rnn_jax.serving import reading

SIZES = 2, 4, 8
KEY = b'root'
texts = st.lists(st.integers(0, 3), max_size=60).map(
  lambda ids: np.array(ids, np.int32)
)
boundaries = st.sampled_from((None, 3))


def plan(ids, boundary=None, key=KEY):
  return reading.plan(key, ids, boundary, SIZES)


@hypothesis.given(texts, boundaries)
def test_chunks_add_up_to_the_text(ids, boundary):
  chunks = plan(ids, boundary)
  whole = [token for chunk in chunks for token in chunk.tokens]
  assert whole == ids.tolist()
  for chunk in chunks:
    assert len(chunk.tokens) in SIZES or 0 < len(chunk.tokens) < SIZES[0]
  assert not chunks or chunks[-1].kept


@hypothesis.given(texts, texts, texts, boundaries)
def test_a_state_is_shared_exactly_where_the_chunks_are(a, b, c, boundary):
  def calls(ids):
    chunks = plan(ids, boundary)
    parts = [tuple(chunk.tokens.tolist()) for chunk in chunks]
    return {chunk.key: tuple(parts[: n + 1]) for n, chunk in enumerate(chunks)}

  first, second = (calls(np.concatenate([a, x])) for x in (b, c))
  for key, parts in first.items():
    assert second.get(key, parts) == parts
  assert set(first) & set(second) == {
    key for key, parts in first.items() if parts in second.values()
  }


@hypothesis.given(texts, texts)
def test_texts_share_what_they_begin_with(a, b):
  """Whole largest chunks; and all turns, if boundaries end segments."""
  largest = len(a) // SIZES[-1]
  keys = [chunk.key for chunk in plan(a) if len(chunk.tokens) == SIZES[-1]]
  longer = [chunk.key for chunk in plan(np.concatenate([a, b]))]
  assert longer[:largest] == keys
  a = np.append(a, np.int32(3))
  turns = [chunk.key for chunk in plan(a, 3)]
  longer = [chunk.key for chunk in plan(np.concatenate([a, b]), 3)]
  assert longer[: len(turns)] == turns


def test_lengths_are_the_largest_that_fit():
  assert reading.lengths(150, (16, 64)) == [64, 64, 16, 6]
  assert reading.lengths(0, (16, 64)) == []


def test_a_key_depends_on_all_before():
  ids = np.arange(8, dtype=np.int32)
  keys = {plan(ids)[0].key, plan(ids, key=b'other')[0].key}
  keys |= {plan(ids[:7])[-1].key, plan(ids[::-1])[0].key}
  assert len(keys) == 4


@pytest.mark.parametrize('sizes', ((), (1, 4), (4, 4), (8, 4)))
def test_bad_sizes_are_refused(sizes):
  with pytest.raises(errors.InputError, match='chunks='):
    reading.check_sizes(sizes)
