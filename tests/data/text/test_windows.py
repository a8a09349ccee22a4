"""Windows: every byte is predicted once an epoch, wherever the cuts are."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax import config
from rnn_jax.data import pipeline
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text import windows
from tests.support import corpora

SENTENCES = ' '.join(f'word{n} and más, then\n  ' for n in range(60))


def byte_pairs():
  data = config.section('data', tokenizer='bpe', vocabulary=300)
  return tokenizer.train(data, corpora.in_memory(SENTENCES))


def made(cut, epoch):
  return [cut.make(window, epoch) for window in range(len(cut))]


def documents_of(examples, boundary):
  """Joins the targets in order and splits them at the boundary."""
  targets = np.concatenate([ids[1:] for ids in examples])
  ends = np.flatnonzero(targets == boundary)
  assert ends[-1] == len(targets) - 1
  return [part[:-1] for part in np.split(targets, ends + 1)[:-1]]


@hypothesis.given(
  st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4),
  st.integers(1, 50),
  st.none() | st.integers(0, 3),
  st.integers(0, 3),
)
def test_targets_are_the_documents_and_inputs_lag_by_one(
  texts, size, seed, epoch
):
  one = tokenizer.Bytes()
  cut = windows.Windows(corpora.in_memory(*texts), one, size, seed)
  examples = [ids for ids in made(cut, epoch) if len(ids)]
  documents = documents_of(examples, one.boundary)
  assert [one.decode(ids) for ids in documents] == texts
  before = one.boundary
  for ids in examples:
    assert len(ids) > 1 and ids[0] == before
    one.decode_bytes(ids[1:]).decode()  # No character is cut.
    before = ids[-1]


@hypothesis.given(
  st.lists(st.sampled_from([*'ab é\n', 'word ', 'x' * 80]), min_size=1),
  st.integers(1, 90),
  st.integers(0, 3),
)
def test_windows_of_byte_pairs_join_to_the_document(parts, size, epoch):
  trained = byte_pairs()
  text = ''.join(parts)
  cut = windows.Windows(corpora.in_memory(text), trained, size, seed=1)
  (document,) = documents_of(made(cut, epoch), trained.boundary)
  assert trained.decode(document) == text


def test_byte_pairs_are_cut_before_words():
  trained = byte_pairs()
  cut = windows.Windows(corpora.in_memory(SENTENCES), trained, 100, seed=0)
  whole = trained.encode(SENTENCES)
  (document,) = documents_of(made(cut, 0), trained.boundary)
  np.testing.assert_array_equal(document, whole)
  examples = [ids for ids in made(cut, 0) if len(ids)]
  for before, after in zip(examples, examples[1:], strict=False):
    assert after[0] == before[-1]


def test_each_epoch_cuts_elsewhere_into_as_many_windows():
  text = ''.join(corpora.UNIQUE)
  cut = windows.Windows(corpora.in_memory(text), tokenizer.Bytes(), 300, seed=0)
  firsts = [tuple(made(cut, epoch)[1][1:4]) for epoch in range(6)]
  assert len(set(firsts)) > 4
  assert len(cut) == -(-len(text.encode()) // 300) + 1
  again = windows.Windows(
    corpora.in_memory(text), tokenizer.Bytes(), 300, seed=0
  )
  for a, b in zip(made(cut, 3), made(again, 3), strict=True):
    np.testing.assert_array_equal(a, b)


@hypothesis.given(
  st.integers(1, 90),
  st.integers(1, 30),
  st.integers(1, 30),
  st.none() | st.integers(0, 3),
)
def test_windows_start_every_stride_and_leave_nothing_out(
  total, size, stride, seed
):
  stride, one = min(stride, size), tokenizer.Bytes()
  text = ''.join(chr(33 + n) for n in range(total))
  cut = windows.Windows(corpora.in_memory(text), one, size, seed, stride)
  examples = [ids[1:] for ids in made(cut, 2) if len(ids)]
  # No byte occurs twice: its value is its place, and the last one's boundary.
  starts = [int(ids[0]) - 33 for ids in examples]
  places = [[n - 33 for n in ids if n != one.boundary] for ids in examples]
  assert starts[0] == 0 and {n for held in places for n in held} == {
    *range(total)
  }
  for start, held in zip(starts, places, strict=True):
    assert held == [*range(start, min(start + size, total))] or not start
  between = np.diff([start for start in starts if start])
  assert (between == stride).all()


def test_the_config_s_stride_is_in_tokens(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, length=24, stride=6)
  examples = corpus.examples(cfg.data, 'train', 0)
  targets = [examples.make(n, 0)[1:] for n in range(len(examples))]
  counts = np.bincount(np.concatenate(targets))
  # Each token within the longest document is in four windows.
  whole = corpus.tokenizer.encode_document(corpora.unique_texts()[-1])
  assert len(whole) == 300 and (counts[whole[24:-24]] == 4).all()
  held_out = pipeline.heldout_batches(corpus, cfg, 'validation')
  once = corpora.count_targets(held_out)
  assert {n for t, n in once.items() if t != corpus.tokenizer.boundary} == {1}


def test_another_seed_cuts_elsewhere():
  text = corpora.in_memory(SENTENCES)
  one, other = (
    windows.Windows(text, tokenizer.Bytes(), 200, seed) for seed in (1, 2)
  )
  assert len(made(one, 0)[0]) != len(made(other, 0)[0])


@pytest.mark.parametrize('size', (3, 4))
def test_a_document_that_fits_is_one_window_from_boundary_to_boundary(size):
  one = tokenizer.Bytes()
  cut = windows.Windows(corpora.in_memory('abc', 'de'), one, size, seed=0)
  assert len(cut) == 2
  assert cut.make(0, 5).tolist() == [one.boundary, *b'abc', one.boundary]
  assert cut.make(1, 5).tolist() == [one.boundary, *b'de', one.boundary]


def test_without_a_seed_every_epoch_is_cut_from_the_start():
  cut = windows.Windows(corpora.in_memory('abcdef'), tokenizer.Bytes(), 4)
  for epoch in (0, 1):
    texts = [tokenizer.Bytes().decode(ids[1:]) for ids in made(cut, epoch)]
    assert texts == ['', 'abcd', 'ef']


def test_an_example_knows_its_epoch_from_its_position():
  text = corpora.in_memory(SENTENCES)
  cut = windows.Windows(text, tokenizer.Bytes(), 200, seed=0)
  example = pipeline.Example(cut, per_epoch=5)
  np.testing.assert_array_equal(example(14, 3), cut.make(3, 2))
  assert not np.array_equal(example(14, 3), cut.make(3, 1))
