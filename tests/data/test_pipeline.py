"""The pipeline: every token once an epoch, resumable, with any workers."""

import collections
import dataclasses
import json
import math
import multiprocessing

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.data.batching import plan as plan_lib
from tests.support import corpora


def small_blocks(monkeypatch, windows):
  """Plans blocks of about so many windows."""
  monkeypatch.setattr(plan_lib, 'BLOCK', windows)
  monkeypatch.setattr(plan_lib, 'BATCHES', 1)


def states_of(batches, count):
  """Returns the batches, and the state before each."""
  states, made = [], []
  for _ in range(count):
    states.append(json.loads(json.dumps(batches.get_state())))
    made.append(next(batches))
  return states, made


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_a_held_out_pass_predicts_every_token_once(tmp_path, layout):
  corpus, cfg = corpora.unique_corpus(tmp_path, layout=layout)
  batches = [*pipeline.heldout_batches(corpus, cfg, 'validation')]
  counts = corpora.count_targets(batches)
  assert counts.pop(corpus.tokenizer.boundary) == len(corpora.SIZES)
  assert counts == dict.fromkeys(range(len(corpora.UNIQUE)), 1)
  assert {batch.tokens_BxL.shape[0] for batch in batches} == {3}
  for batch in batches:  # padding is marked where it begins, after a document
    real = np.pad(batch.weights_BxL > 0, [(0, 0), (0, 1)])
    begins = real[:, :-1] & ~real[:, 1:]
    marks = np.pad(begins, [(0, 0), (1, 0)])[:, :-1]
    np.testing.assert_array_equal(batch.starts_BxL < 0, marks)


# Several blocks of an epoch, or several epochs of a block.
@pytest.mark.parametrize('windows', (20, 200))
@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_training_predicts_every_token_once_an_epoch(
  tmp_path, monkeypatch, layout, windows
):
  small_blocks(monkeypatch, windows)
  corpus, cfg = corpora.unique_corpus(tmp_path, layout=layout)
  (stage,) = pipeline.training_stages(corpus, cfg)
  assert (stage.epochs < 1) == (windows == 20)
  batches = plan_lib.Batches([stage])
  counts = collections.Counter()
  blocks = math.ceil(2 / stage.epochs)
  for planned in batches.planned():
    if planned.number // plan_lib.EACH == blocks:
      break
    batch = batches.make(planned)
    assert batch.weights_BxL.any()
    counts += corpora.count_targets([batch])
  epochs = round(blocks * stage.epochs)
  assert counts.pop(corpus.tokenizer.boundary) == epochs * len(corpora.SIZES)
  assert counts == dict.fromkeys(range(len(corpora.UNIQUE)), epochs)


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_an_interrupted_held_out_pass_resumes_too(tmp_path, layout):
  corpus, cfg = corpora.unique_corpus(tmp_path, layout=layout)
  batches = pipeline.heldout_batches(corpus, cfg, 'validation')
  corpora.take(batches, 3)
  other = pipeline.heldout_batches(corpus, cfg, 'validation')
  other.set_state(batches.get_state())
  corpora.assert_same([*other], [*batches])


CHOICES = (
  *({'layout': layout} for layout in corpora.LAYOUTS),
  {'rarity_buckets': 2},
  {'feature_buckets': 3, 'curriculum': 'combined'},
  {'curriculum': 'length'},
  {'curriculum': 'rarity', 'layout': 'sorted', 'pool': 2},
  {'length_schedule': (6, 12)},
  {
    'length_schedule': (6, 12),
    'boundaries': (5, 12, 24),
    'curriculum': 'length',
  },
  {'length_schedule': (6, 12), 'layout': 'padded'},
  {'length_schedule': (6, 12), 'layout': 'sorted', 'pool': 2},
  {'length_schedule': (6, 12), 'layout': 'packed', 'fit': 'best'},
  {'length_schedule': (6, 12), 'layout': 'stream', 'carry_state': True},
)


@pytest.mark.parametrize('choice', CHOICES, ids=str)
def test_every_choice_resumes_anywhere_on_any_hosts(
  tmp_path, monkeypatch, choice
):
  """A batch is a function of its number, whoever makes it."""
  small_blocks(monkeypatch, 60)
  corpus, cfg = corpora.unique_corpus(tmp_path, **choice)
  batches = pipeline.training_batches(corpus, cfg)
  states, uncut = states_of(batches, 70)
  assert all([*state] == ['batch'] for state in states)
  other = pipeline.training_batches(corpus, cfg)
  for cut in (69, 43, 24, 7, 0):  # backwards, on an iterator in use
    other.set_state(states[cut])
    corpora.assert_same(
      corpora.take(other, min(70 - cut, 26)), uncut[cut:][:26]
    )
  shapes = {batch.tokens_BxL.shape for batch in uncut}
  assert shapes <= {*pipeline.batch_shapes(corpus, cfg)}
  for host in range(2):
    halves = pipeline.training_batches(
      corpus, cfg, own=lambda rows, host=host: np.arange(rows) % 2 == host
    )
    for batch, whole in zip(corpora.take(halves, 12), uncut, strict=False):
      for x, expected in zip(batch[:4], whole[:4], strict=True):
        np.testing.assert_array_equal(x[host::2], expected[host::2])
      assert not batch.weights_BxL[1 - host :: 2].any()


@pytest.mark.slow
def test_workers_change_nothing(tmp_path):
  choice = {
    'length_schedule': (12,),
    'curriculum': 'rarity',
    'rarity_buckets': 2,
  }
  corpus, alone = corpora.unique_corpus(tmp_path, **choice)
  (tmp_path / 'again').mkdir()
  _, helped = corpora.unique_corpus(tmp_path / 'again', workers=2, **choice)
  expected = corpora.take(pipeline.training_batches(corpus, alone), 60)
  batches = pipeline.training_batches(corpus, helped)
  corpora.assert_same(corpora.take(batches, 12), expected[:12])
  state = batches.get_state()
  corpora.assert_same(corpora.take(batches, 48), expected[12:])
  batches.close()
  assert not multiprocessing.active_children()
  other = pipeline.training_batches(corpus, alone)
  other.set_state(state)
  corpora.assert_same(corpora.take(other, 48), expected[12:])


def test_a_carried_stream_reads_its_segments_in_order(tmp_path):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, layout='stream', carry_state=True
  )
  batches = corpora.take(pipeline.training_batches(corpus, cfg), 30)
  for row in range(4):
    tokens, targets, starts = (
      np.concatenate([getattr(batch, name)[row] for batch in batches])
      for name in ('tokens_BxL', 'targets_BxL', 'starts_BxL')
    )
    reads_on = tokens[1:] == targets[:-1]
    assert reads_on[starts[1:] == 0].all()
    assert starts[0] == 1 and 2 < starts.sum() < 40


def test_the_seed_decides_the_order(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, layout='packed')
  (tmp_path / 'again').mkdir()
  _, other = corpora.unique_corpus(
    tmp_path / 'again', layout='packed', train={'seed': 1}
  )
  one, same, another = (
    next(pipeline.training_batches(corpus, c)) for c in (cfg, cfg, other)
  )
  corpora.assert_same([one], [same])
  assert not np.array_equal(one.tokens_BxL, another.tokens_BxL)
  alone = [('order_seed', 1), ('weights_seed', 1)]
  ordered, weighed = (
    next(
      pipeline.training_batches(
        corpus,
        dataclasses.replace(
          cfg, train=dataclasses.replace(cfg.train, **{key: seed})
        ),
      )
    )
    for key, seed in alone
  )
  corpora.assert_same([another], [ordered])
  corpora.assert_same([one], [weighed])


def test_held_out_rows_can_be_longer_or_shorter(tmp_path):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, boundaries=(8, 24), evaluate={'batch_size': 2, 'length': 16}
  )
  batches = [*pipeline.heldout_batches(corpus, cfg, 'validation')]
  assert {batch.tokens_BxL.shape for batch in batches} == {(2, 8), (2, 16)}
  counts = corpora.count_targets(batches)
  assert sum(counts.values()) == len(corpora.UNIQUE) + len(corpora.SIZES)


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
@pytest.mark.parametrize(('multiple', 'rows'), ((1, 64), (3, 48), (8, 64)))
def test_a_split_of_few_rows_has_small_batches(
  tmp_path, layout, multiple, rows
):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, layout=layout, evaluate={'batch_size': 512, 'length': 64}
  )
  shapes = pipeline.heldout_shapes(corpus, cfg, 'validation', multiple)
  # 12 documents, of which 6 are longer than a row, or fill a lane in turn.
  needed = {n for n, _ in shapes}
  assert len(needed) == 1 and needed.pop() <= rows
  batches = [
    *pipeline.heldout_batches(corpus, cfg, 'validation', multiple=multiple)
  ]
  assert all(len(batch.tokens_BxL) % multiple == 0 for batch in batches)
  counts = corpora.count_targets(batches)
  assert sum(counts.values()) == len(corpora.UNIQUE) + len(corpora.SIZES)
  part = pipeline.heldout_shapes(corpus, cfg, 'validation', multiple, 20)
  assert {n for n, _ in part} <= {multiple, 4 * multiple}


def test_a_split_of_many_rows_has_batches_of_all_rows(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, evaluate={'batch_size': 12})
  shapes = pipeline.heldout_shapes(corpus, cfg, 'validation')
  assert {rows for rows, _ in shapes} == {12}


def test_an_empty_split_is_refused_with_the_remedy(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path)
  with pytest.raises(errors.InputError, match="'test' has no.*test_path"):
    pipeline.heldout_batches(corpus, cfg, 'test')


def test_a_batch_that_devices_cannot_divide_is_refused(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path)
  with pytest.raises(errors.InputError, match='by .* accumulation = 5'):
    pipeline.training_batches(corpus, cfg, multiple=5)
  with pytest.raises(errors.InputError, match='evaluate.batch_size gives 3'):
    pipeline.heldout_batches(corpus, cfg, 'validation', multiple=4)
  (tmp_path / 'again').mkdir()
  _, cfg = corpora.unique_corpus(tmp_path / 'again', tokens_per_batch=48)
  with pytest.raises(errors.InputError, match='data.tokens_per_batch gives 2'):
    pipeline.batch_shapes(corpus, cfg, multiple=4)


def test_the_tokenizer_of_the_work_folder_is_used_again(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path)
  path = tmp_path / 'work' / 'tokenizer.json'
  saved = json.loads(path.read_text())
  saved['characters'] += '\uffff'
  path.write_text(json.dumps(saved))
  again = corpus_lib.Corpus.open(cfg, tmp_path / 'work')
  assert again.tokenizer.size == corpus.tokenizer.size + 1


def test_a_tokenizer_of_another_kind_is_refused(tmp_path):
  corpora.unique_corpus(tmp_path)
  (tmp_path / 'again').mkdir()
  _, cfg = corpora.unique_corpus(tmp_path / 'again', tokenizer='bytes')
  with pytest.raises(errors.InputError, match="'bytes'.*kind 'characters'"):
    corpus_lib.Corpus.open(cfg, tmp_path / 'work')


def test_held_out_characters_that_were_not_trained_are_named(tmp_path, caplog):
  (tmp_path / 'train.txt').write_text('abc ' * 30)
  (tmp_path / 'validation.txt').write_text('ab ☃')
  cfg = corpora.configure(
    source='text',
    path=str(tmp_path / 'train.txt'),
    validation_path=str(tmp_path / 'validation.txt'),
    splits=(100, 0, 0),
    tokenizer='characters',
  )
  corpus = corpus_lib.Corpus.open(cfg, tmp_path / 'work')
  assert 'validation.txt' in caplog.text and '☃' in caplog.text
  counts = corpora.count_targets(
    pipeline.heldout_batches(corpus, cfg, 'validation')
  )
  assert counts[corpus.tokenizer.unknown] == 1


def test_no_text_to_train_on_is_refused(tmp_path):
  (tmp_path / 'one.txt').write_text('x')
  cfg = corpora.configure(
    source='text',
    path=str(tmp_path / 'one.txt'),
    splits=(90, 10, 0),
    split_by='position',
  )
  with pytest.raises(errors.InputError, match='no text to train on'):
    corpus_lib.Corpus.open(cfg, tmp_path / 'work')
