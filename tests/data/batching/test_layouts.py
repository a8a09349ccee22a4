"""Layouts: every window is in the batches once, and little is padding."""

import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax import config
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from tests.data.batching import plans
from tests.support import corpora

SIZES = st.lists(st.integers(1, 12), max_size=70)
ONE_ROW = ('buckets', 'padded', 'sorted')
VARIED = ((6, 4), (3, 8), (2, 12))
SAME = ((3, 4), (3, 8), (3, 12))


def shapes_of(layout):
  if layout in ('packed', 'stream'):
    return ((3, 12),)
  return SAME if layout == 'padded' else VARIED


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
@hypothesis.given(SIZES, st.none() | st.integers(0, 3))
def test_every_window_is_planned_once(layout, sizes, seed):
  # A lane reads segments of any length; rows of other layouts hold a window.
  sizes = np.array(sizes, np.int64) * (5 if layout == 'stream' else 1)
  shapes = shapes_of(layout)
  laid = plans.plan(layout, sizes, shapes, seed)
  done = np.zeros(len(sizes), int)
  used = [np.zeros(shapes[n], int) for n in laid.shape]
  for batch, row, at, item, skip, size in zip(*laid[1:], strict=True):
    assert size > 0 and skip == done[item]
    done[item] += size
    used[batch][row, at : at + size] += 1
    assert at + size <= shapes[laid.shape[batch]][1]
  np.testing.assert_array_equal(done, sizes)
  assert (np.diff(laid.batch) >= 0).all()
  assert all(batch.any() and batch.max() == 1 for batch in used)
  if layout in ONE_ROW:
    assert sum(not batch.any(1).all() for batch in used) <= 1
    for batch, shape in zip(used, laid.shape, strict=True):
      # No shape of shorter rows would do, unless rows moved up at the end.
      shorter = shapes[shape - 1][1] if shape else 0
      moved = layout == 'buckets' and not batch[:, shorter:].any()
      assert batch.any(0).sum() > shorter or moved


@hypothesis.given(SIZES)
def test_levels_are_not_mixed_in_a_full_batch(sizes):
  sizes = np.array(sizes, np.int64)
  levels = np.arange(len(sizes)) % 2
  laid = plans.plan('buckets', sizes, VARIED, levels=levels, rarity_buckets=2)
  assert sorted(laid.item) == [*range(len(sizes))]
  mixed = [
    len({*levels[laid.item[laid.batch == n]].tolist()}) > 1
    for n in range(len(laid.shape))
  ]
  # What is left of each level goes together, at the end.
  assert not any(mixed[: -2 * len(VARIED) or None])


def efficiency(batches):
  real = sum(batch.weights_BxL.sum() for batch in batches)
  return real / sum(batch.weights_BxL.size for batch in batches)


def test_a_batch_is_as_long_as_its_longest_row_rounded_up(tmp_path):
  for layout in ('padded', 'sorted'):
    (tmp_path / layout).mkdir()
    corpus, cfg = corpora.unique_corpus(
      tmp_path / layout, layout=layout, length=22, length_multiple=5
    )
    announced = pipeline.batch_shapes(corpus, cfg)
    assert announced == ((4, 5), (4, 10), (4, 15), (4, 20), (4, 22))
    batches = corpora.take(pipeline.training_batches(corpus, cfg), 50)
    for batch in batches:
      longest = int(batch.weights_BxL.sum(1).max())
      assert batch.tokens_BxL.shape[1] == min(-(-longest // 5) * 5, 22)
      assert batch.weights_BxL.any(1).all()


def test_a_larger_pool_pads_less(tmp_path):
  efficiencies = []
  for layout, own in (
    ('padded', {}),
    ('sorted', {'pool': 2}),
    ('sorted', {'pool': 8}),
  ):
    folder = tmp_path / f'{layout}{len(efficiencies)}'
    folder.mkdir()
    corpus, cfg = corpora.unique_corpus(
      folder, layout=layout, length=304, **own
    )
    batches = corpora.take(pipeline.training_batches(corpus, cfg), 48)
    efficiencies.append(efficiency(batches))
  assert efficiencies == sorted(efficiencies)
  assert efficiencies[-1] > 1.5 * efficiencies[0]


def test_buckets_save_padding(tmp_path):
  efficiencies = []
  for buckets in (1, 4):
    folder = tmp_path / str(buckets)
    folder.mkdir()
    corpus, cfg = corpora.unique_corpus(folder, length=304, buckets=buckets)
    batches = corpora.take(pipeline.training_batches(corpus, cfg), 100)
    efficiencies.append(efficiency(batches))
  assert efficiencies[1] > 2 * efficiencies[0] > 0.4


@pytest.mark.parametrize(('layout', 'least'), (('packed', 0.9), ('stream', 1)))
def test_little_of_a_batch_is_padding(tmp_path, layout, least):
  corpus, cfg = corpora.unique_corpus(tmp_path, layout=layout, batch_size=6)
  batches = corpora.take(pipeline.training_batches(corpus, cfg), 40)
  assert efficiency(batches) >= least


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_the_description_is_that_of_the_batches(tmp_path, layout):
  corpus, cfg = corpora.unique_corpus(tmp_path, layout=layout)
  summary = pipeline.describe(corpus, cfg, 2)
  batches = corpora.take(pipeline.training_batches(corpus, cfg, 2), 100)
  assert summary.startswith(f'{layout}, ')
  shapes = pipeline.batch_shapes(corpus, cfg, 2)
  assert f'{len(shapes)} shape' in summary
  if layout == 'stream':
    assert summary.endswith('1 shape: 4x24, no padding')
    return
  percent = int(summary.rpartition('padding efficiency ')[2].rstrip('%'))
  assert abs(percent / 100 - efficiency(batches)) < 0.06


@pytest.mark.parametrize('fit', ('first', 'best'))
def test_packed_sentences_fill_their_rows(tmp_path, fit):
  """Lengths distributed as in reviews: about 30 tokens, at most 100."""
  lengths = np.random.default_rng(0).lognormal(3.2, 0.5, 400)
  texts = ['x' * int(np.clip(n, 3, 96)) for n in lengths]
  path = tmp_path / 'sentences.jsonl'
  path.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
  raw = config.default()
  raw.data.update(source='jsonl', path=str(path), splits=(100, 0, 0))
  raw.data.workers = 0
  raw.data.update(layout='packed', fit=fit, length=97, tokens_per_batch=4096)
  cfg = config.parse(raw)
  corpus = corpus_lib.Corpus.open(cfg, tmp_path)
  batches = corpora.take(pipeline.training_batches(corpus, cfg), 12)
  assert efficiency(batches) >= 0.95
  assert len(pipeline.batch_shapes(corpus, cfg)) == 1


def test_a_million_rows_are_planned_at_once():
  """With a loop over pairs of rows it would take hours."""
  sizes = np.random.default_rng(0).integers(1, 257, 2**20)
  shapes = tuple((32, length) for length in (64, 128, 192, 256))
  laid = plans.plan('buckets', sizes, shapes)
  assert len(laid.shape) == 2**20 // 32
