"""Shapes: those announced occur, and boundaries fit the rows."""

import dataclasses

import pytest

from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.data.batching import shapes as shapes_lib
from tests.support import corpora


@pytest.mark.parametrize('tokens_per_batch', (0, 100))
@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_shapes_are_those_announced(tmp_path, layout, tokens_per_batch):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, layout=layout, tokens_per_batch=tokens_per_batch
  )
  announced = pipeline.batch_shapes(corpus, cfg, multiple=2)
  batches = corpora.take(pipeline.training_batches(corpus, cfg, 2), 60)
  shapes = {batch.tokens_BxL.shape for batch in batches}
  assert shapes == {*announced} or (
    cfg.data.shapes_vary and shapes < {*announced}
  )
  assert announced == tuple(sorted(announced))
  for count, length in announced:
    assert count % 2 == 0
    assert not tokens_per_batch or 0 < count * length <= tokens_per_batch


def test_given_boundaries_are_the_lengths_of_the_buckets(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, boundaries=(5, 24))
  assert pipeline.batch_shapes(corpus, cfg) == ((4, 5), (4, 24))


def test_a_bucket_that_no_row_can_fill_is_refused(tmp_path):
  (tmp_path / 'one.txt').write_text('x' * 40)
  cfg = corpora.configure(
    source='text',
    path=str(tmp_path / 'one.txt'),
    splits=(100, 0, 0),
    boundaries=(8, 64),
    length=64,
    batch_size=1,
  )
  corpus = corpus_lib.Corpus.open(cfg, tmp_path / 'work')
  message = r'boundaries=\(8, 64\): .*of all rows, 41 tokens: begin with 41'
  with pytest.raises(errors.InputError, match=message):
    pipeline.training_batches(corpus, cfg)


def test_a_boundary_may_be_that_of_one_row_outside_the_sample(
  tmp_path, monkeypatch
):
  corpus, cfg = corpora.unique_corpus(tmp_path, length=24)
  seed = cfg.train.seed
  monkeypatch.setattr(shapes_lib, 'SAMPLE', 10**6)
  lengths = shapes_lib.sample_lengths(corpus, cfg.data, seed)
  shapes_lib.sample.cache_clear()
  monkeypatch.setattr(shapes_lib, 'SAMPLE', 1)
  data = dataclasses.replace(cfg.data, boundaries=(min(lengths), 24))
  shapes = shapes_lib.training_shapes(corpus, data, seed, 1)
  assert [length for _, length in shapes] == [min(lengths), 24]
  data = dataclasses.replace(cfg.data, boundaries=(min(lengths) - 1, 24))
  with pytest.raises(errors.InputError, match='the shortest of all rows'):
    shapes_lib.training_shapes(corpus, data, seed, 1)


def test_a_held_out_pass_has_its_own_number_of_rows(tmp_path):
  corpus, cfg = corpora.unique_corpus(tmp_path, batch_size=3)
  with pytest.raises(errors.InputError, match='data.batch_size=3'):
    shapes_lib.training_shapes(corpus, cfg.data, 0, 2)
  rows = {rows for rows, _ in shapes_lib.heldout_shapes(corpus, cfg, 2)}
  assert len(rows) == 1 and rows.pop() % 2 == 0


def test_rows_of_a_token_budget_grow_as_batches_shorten(tmp_path):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, layout='sorted', tokens_per_batch=100
  )
  announced = pipeline.batch_shapes(corpus, cfg, multiple=2)
  assert announced == ((4, 24), (6, 16), (12, 8))
  (tmp_path / 'padded').mkdir()
  corpus, cfg = corpora.unique_corpus(
    tmp_path / 'padded', layout='padded', tokens_per_batch=100
  )
  announced = pipeline.batch_shapes(corpus, cfg, multiple=2)
  assert announced == ((4, 8), (4, 16), (4, 24))
