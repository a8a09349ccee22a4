"""Documents: reading parts, stable splits, nothing lost between splits."""

import pickle

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax import errors
from rnn_jax.data.text import documents
from tests.support import corpora


def texts_of(part):
  return [part.read(n) for n in range(len(part))]


def test_a_part_of_a_document_is_read_relative_to_the_document():
  reader = documents.InMemory(['0123456789'])
  one = documents.Documents(reader, *np.array([[0], [2], [8]]))
  assert one.read(0) == b'234567'
  assert one.read(0, 1, 3) == b'34'
  assert one.read(0, 4, 99) == b'67'
  assert one.total_bytes == 6


def test_empty_units_are_no_documents():
  assert corpora.in_memory('a', '', 'b').names == ('0', '2')


@hypothesis.given(
  st.lists(st.text(min_size=1, max_size=20), min_size=3, max_size=30),
  st.sampled_from([(90, 5, 5), (34, 33, 33), (80, 20, 0)]),
)
def test_a_split_by_document_gives_each_document_to_one_split(texts, shares):
  parts = documents.split(corpora.in_memory(*texts), shares, 'document')
  names = [name for part in parts.values() for name in part.names]
  assert sorted(names) == sorted(map(str, range(len(texts))))
  for part, share in zip(parts.values(), shares, strict=True):
    assert bool(len(part)) == bool(share)


def test_a_split_by_document_depends_only_on_the_names():
  texts = [f'text {n}' for n in range(40)]
  splits = documents.split(corpora.in_memory(*texts), (50, 25, 25), 'document')
  reader = documents.InMemory(reversed(texts))
  reader.names = tuple(reversed(reader.names))
  again = documents.split(documents.whole(reader), (50, 25, 25), 'document')
  for name in documents.SPLITS:
    assert sorted(texts_of(splits[name])) == sorted(texts_of(again[name]))
  assert len(splits['train']) == 20


def test_too_few_documents_for_a_split_name_the_remedy():
  with pytest.raises(errors.InputError, match=r"2 doc.*split_by='position'"):
    documents.split(corpora.in_memory('a', 'b'), (90, 5, 5), 'document')


@hypothesis.given(
  st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=5),
  st.sampled_from([(90, 10, 0), (50, 25, 25), (1, 0, 99)]),
)
def test_a_split_by_position_cuts_each_text_between_characters(texts, shares):
  whole = corpora.in_memory(*texts)
  parts = documents.split(whole, shares, 'position')
  joined = {name: '' for name in whole.names}
  for part in parts.values():
    for name, text in zip(part.names, texts_of(part), strict=True):
      joined[name] += text.decode()
  assert list(joined.values()) == texts


def test_a_split_by_position_cuts_at_the_percentages():
  parts = documents.split(corpora.in_memory('x' * 1000), (90, 6, 4), 'position')
  assert [part.total_bytes for part in parts.values()] == [900, 60, 40]


def test_documents_survive_pickling():
  documents_ = corpora.in_memory('one', 'two')
  assert texts_of(pickle.loads(pickle.dumps(documents_))) == [b'one', b'two']
