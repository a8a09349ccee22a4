"""A curriculum: easy and hard by fractions, each example once an epoch."""

import json
import pickle

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import pipeline
from rnn_jax.data.batching import curriculum
from tests.support import corpora


def order(count=100, seed=0, hard=None, **data):
  hard = np.arange(count) >= count // 2 if hard is None else hard
  return curriculum.Order(
    np.arange(count), hard, seed, config.section('data', **data)
  )


def epoch(made, number, count=100):
  return [made(number * count + at, None) for at in range(count)]


def test_each_stage_draws_its_fraction_of_easy_examples():
  made = order()
  for number, (easy, first) in enumerate(((40, 50), (30, 50), (20, 50))):
    is_easy = np.array(epoch(made, number)) < 50
    assert is_easy[:first].sum() == easy
    # Every ten of the beginning have the fraction, give or take one.
    for at in range(0, first, 10):
      assert abs(is_easy[at : at + 10].sum() - easy / 5) <= 1
  is_easy = np.array(epoch(made, 0)) < 50
  assert not is_easy[63:].any()  # easy ones are used up: the hard ones' rest


def test_after_the_stages_all_are_shuffled_together():
  made = order(1000)
  is_easy = np.array(epoch(made, 3, 1000)) < 500
  assert abs(is_easy[:500].sum() - 250) < 60
  assert epoch(made, 3, 1000) != epoch(made, 4, 1000)


def test_fractions_and_the_length_of_a_stage_are_options():
  made = order(curriculum_shares=(90, 10), curriculum_epochs=2)
  early = [(np.array(epoch(made, n)) < 50)[:50].sum() for n in range(5)]
  assert early[:2] == [45, 45] and early[2:4] == [5, 5]
  assert 10 < early[4] < 40


@hypothesis.given(
  st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 5)
)
def test_every_example_comes_once_an_epoch(hard, number):
  made = order(len(hard), hard=np.array(hard))
  drawn = epoch(made, number, len(hard))
  assert sorted(drawn) == [*range(len(hard))]
  # Another instance, whatever it returned before.
  other = pickle.loads(pickle.dumps(order(len(hard), hard=np.array(hard))))
  epoch(other, number + 1, len(hard))
  assert epoch(other, number, len(hard)) == drawn


def test_the_seed_decides_the_order():
  assert epoch(order(), 0) == epoch(order(), 0) != epoch(order(seed=1), 0)


def test_long_examples_are_hard(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, curriculum='length')
  hard = curriculum.hard(corpus, cfg.data, 0)
  examples = corpus.examples(cfg.data, 'train', 0)
  lengths = np.array([len(examples.make(n, 0)) for n in range(len(examples))])
  assert hard.sum() == len(examples) - len(examples) // 2
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
  corpus = pipeline.Corpus.open(cfg, tmp_path / 'work')
  hard = curriculum.hard(corpus, cfg.data, 0)
  assert hard.tolist() == [False] * 8 + [True] * 8


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
  return pipeline.Corpus.open(cfg, folder / 'run'), cfg


def test_a_column_says_which_documents_are_hard(tmp_path):
  corpus, cfg = write_rows(tmp_path, (0.5, 7, -1, 3))
  hard = curriculum.hard(corpus, cfg.data, 0)
  examples = corpus.examples(cfg.data, 'train', 0)
  hard_documents = {examples.document(n) for n in np.flatnonzero(hard)}
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
