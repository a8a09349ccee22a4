"""A curriculum: easy and hard examples by fractions, throughout an epoch."""

import collections
import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.batching import curriculum
from tests.support import corpora


def order(count=100, seed=0, hard=None, **data):
  hard = np.arange(count) >= count // 2 if hard is None else hard
  return curriculum.Order(hard, seed, config.section('data', **data))


def draws(made, first, end):
  return made(np.arange(first, end))


def test_the_fractions_hold_throughout_and_the_last_one_stays():
  made = order()  # of 100: the lower 50 are easy; stages of 5 epochs
  is_easy = draws(made, 0, 2000) < 50
  percent = [80] * 5 + [60] * 5 + [40] * 10
  # Every ten of an epoch have its fraction, give or take one.
  for at in range(0, 2000, 10):
    expected = percent[at // 100] / 10
    assert abs(is_easy[at : at + 10].sum() - expected) <= 1
  for epoch, easy in enumerate(percent):
    assert is_easy[100 * epoch : 100 * epoch + 100].sum() == easy


def test_fractions_and_the_length_of_a_stage_are_options():
  made = order(curriculum_shares=(90, 10), curriculum_epochs=2)
  is_easy = draws(made, 0, 500) < 50
  assert is_easy.reshape(5, 100).sum(1).tolist() == [90, 90, 10, 10, 10]


@hypothesis.given(
  st.lists(st.booleans(), min_size=1, max_size=40),
  st.lists(st.integers(1, 99), min_size=1, max_size=3),
)
def test_the_examples_of_a_half_are_drawn_equally_often(hard, percentages):
  hard, size = np.array(hard), len(hard)
  data = {'curriculum_shares': tuple(percentages), 'curriculum_epochs': 1}
  made = order(size, hard=hard, **data)
  drawn = draws(made, 0, 4 * size)
  counts = np.bincount(drawn, minlength=size)
  for half in (counts[hard], counts[~hard]):
    assert not len(half) or half.max() - half.min() <= 1
  some = np.arange(4 * size - 1, -1, -3)  # any places, in any order
  np.testing.assert_array_equal(made(some), drawn[some])


def test_equal_fractions_draw_each_example_once_an_epoch():
  made = order(curriculum_shares=(50,))
  epochs = draws(made, 0, 300).reshape(3, 100)
  assert np.sort(epochs).tolist() == [[*range(100)]] * 3
  assert epochs[0].tolist() != epochs[1].tolist()


def test_the_seed_decides_the_order():
  first, again, other = (draws(order(seed=n), 0, 100) for n in (0, 0, 1))
  assert first.tolist() == again.tolist() != other.tolist()


def test_the_combined_difficulty_is_the_sum_in_standard_deviations():
  lengths, perplexities = np.array([4.0, 8, 12]), np.array([9.0, 1, 2])
  complexities = np.array([1.0, 1, 1])  # all the same: its order is free
  each = np.stack([lengths, np.log(perplexities), complexities], 1)
  expected = 1 + lengths / lengths.std() + perplexities / perplexities.std()
  np.testing.assert_allclose(curriculum.combined(each), expected, rtol=1e-12)


def test_long_examples_are_hard(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, curriculum='length')
  hard = curriculum.hard(corpus, cfg.data, 0)
  windows = corpus.windows(cfg.data, 'train', 0)
  _, start, stop = windows.at(np.arange(len(windows)))
  lengths = stop - start
  assert hard.sum() == len(windows) - len(windows) // 2
  assert lengths[hard].min() >= lengths[~hard].max()


def test_examples_of_rare_tokens_are_hard(tmp_path):
  texts = ['ab' * 10] * 8 + ['xyzw' * 5, 'kqjv' * 5] * 4
  for n, text in enumerate(texts):
    (tmp_path / f'{n:02}.txt').write_text(text)
  cfg = corpora.configure(
    source='text',
    path=str(tmp_path / '*.txt'),
    splits=(100, 0, 0),
    curriculum='rarity',
  )
  corpus = corpus_lib.Corpus.open(cfg, tmp_path / 'work')
  hard = curriculum.hard(corpus, cfg.data, 0)
  assert hard.tolist() == [False] * 8 + [True] * 8


def test_long_varied_examples_of_rare_tokens_are_hard(tmp_path):
  texts = ['abab', 'abababababab', 'abcd', 'xyzwkqjvxyzw']
  for n, text in enumerate(texts):
    (tmp_path / f'{n}.txt').write_text(text)
  cfg = corpora.configure(
    source='text',
    path=str(tmp_path / '*.txt'),
    splits=(100, 0, 0),
    curriculum='combined',
  )
  corpus = corpus_lib.Corpus.open(cfg, tmp_path / 'work')
  # The unigrams of all texts, each with its boundary, smoothed by one.
  V = corpus.tokenizer.size
  ids = [[*text, 'end'] for text in texts]
  counts = collections.Counter(token for row in ids for token in row)
  total = sum(counts.values()) + V
  rows = []
  for row in ids:
    surprise = [np.log(total / (counts[token] + 1)) for token in row]
    complexity = len({*row}) / len(row) ** 0.5
    rows.append([len(row), np.exp(np.mean(surprise)), complexity])
  scores = np.sum(np.array(rows) / np.std(rows, 0), 1)
  hard = curriculum.hard(corpus, cfg.data, 0)
  assert hard.tolist() == (scores > np.median(scores)).tolist()
  assert hard.tolist() != [len(text) > 4 for text in texts]


def write_rows(folder, numbers):
  rows = [{'text': 'x' * 70, 'hard': number} for number in numbers]
  (folder / 'a.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  cfg = corpora.configure(
    source='jsonl',
    path=str(folder / 'a.jsonl'),
    splits=(100, 0, 0),
    length=32,
    curriculum='column',
    difficulty='hard',
  )
  return corpus_lib.Corpus.open(cfg, folder / 'run'), cfg


def test_a_column_says_which_documents_are_hard(tmp_path):
  corpus, cfg = write_rows(tmp_path, (0.5, 7, -1, 3))
  hard = curriculum.hard(corpus, cfg.data, 0)
  windows = corpus.windows(cfg.data, 'train', 0)
  hard_documents = {*windows.at(np.flatnonzero(hard))[0].tolist()}
  assert len(hard) > 4 and hard_documents == {1, 3}


def test_a_difficulty_that_is_not_a_number_is_named(tmp_path):
  for bad in ('much', None, True):
    with pytest.raises(errors.InputError, match="a.jsonl:2: .*'hard' is"):
      write_rows(tmp_path, (1, bad))


def test_a_source_without_columns_is_refused(tmp_path):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, curriculum='column', difficulty='hard'
  )
  with pytest.raises(errors.InputError, match="data.source='text' has no col"):
    curriculum.hard(corpus, cfg.data, 0)
