"""The pipeline: every token once an epoch, resumable, whoever makes it."""

import collections
import dataclasses
import json
import multiprocessing
import re

import grain
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from rnn_jax import errors
from rnn_jax.data import pipeline
from rnn_jax.data import plan
from rnn_jax.data import rows
from tests.data import helpers

LAYOUTS = ('buckets', 'padded', 'sorted', 'packed', 'stream')
POOLED = ('padded', 'sorted')


def read_but_not_yielded(state, corpus, cfg):
  """Counts the tokens that wait; returns them and the pieces of an epoch."""
  pieces = corpus.examples(cfg.data, 'train', cfg.train.seed)
  order = pipeline._order(pieces, cfg.train.seed)
  counts = collections.Counter()
  for position, done in state.get('lanes', []):
    counts.update(order[position][done + 1 :].tolist())
  waiting = jax.tree.leaves([state.get(k, []) for k in ('waiting', 'left')])
  for position, row in np.array(waiting, int).reshape(-1, 2):
    counts.update(rows.cut(order[position], cfg.data.length)[row][1:].tolist())
  return counts, len(pieces)


def yielded_of_a_pool(state, corpus, cfg):
  """Counts the tokens of its pool's batches that a state is behind."""
  batches = pipeline.training_batches(corpus, cfg)
  batches.set_state(state | {'done': 0})
  return helpers.count_targets(helpers.take(batches, state['done']))


def efficiency(batches):
  real = sum(batch.weights_BxL.sum() for batch in batches)
  return real / sum(batch.weights_BxL.size for batch in batches)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_held_out_pass_predicts_every_token_once(tmp_path, layout):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  batches = [*pipeline.heldout_batches(corpus, cfg, 'validation')]
  counts = helpers.count_targets(batches)
  assert counts.pop(corpus.tokenizer.boundary) == len(helpers.SIZES)
  assert counts == dict.fromkeys(range(len(helpers.UNIQUE)), 1)
  assert {batch.tokens_BxL.shape[0] for batch in batches} == {3}


@pytest.mark.parametrize('stop', (1, 17, 60))
@pytest.mark.parametrize('layout', LAYOUTS)
def test_training_predicts_every_token_once_an_epoch(tmp_path, layout, stop):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  batches = pipeline.training_batches(corpus, cfg)
  counts = helpers.count_targets(helpers.take(batches, stop))
  state = batches.get_state()
  waiting, per_epoch = read_but_not_yielded(state, corpus, cfg)
  counts += waiting
  if layout in POOLED:
    counts -= yielded_of_a_pool(state, corpus, cfg)
  epochs, rest = divmod(state['examples']['position'], per_epoch)
  del counts[corpus.tokenizer.boundary]
  assert set(counts.values()) <= {epochs, epochs + 1}
  assert all(counts[n] >= epochs for n in range(len(helpers.UNIQUE)))
  assert bool(rest) == (epochs + 1 in counts.values())


@pytest.mark.parametrize('cut', (0, 1, 23))
@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_cut_run_goes_on_with_the_same_batches(tmp_path, layout, cut):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  batches = pipeline.training_batches(corpus, cfg)
  helpers.take(batches, cut)
  state = json.loads(json.dumps(batches.get_state()))
  uncut = helpers.take(batches, 30)
  other = pipeline.training_batches(corpus, cfg)
  other.set_state(state)
  helpers.assert_same(helpers.take(other, 30), uncut)
  batches.set_state(state)  # Backwards, on an iterator in use.
  helpers.assert_same(helpers.take(batches, 30), uncut)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_held_out_pass_can_be_cut_too(tmp_path, layout):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  batches = pipeline.heldout_batches(corpus, cfg, 'validation')
  helpers.take(batches, 3)
  other = pipeline.heldout_batches(corpus, cfg, 'validation')
  other.set_state(batches.get_state())
  helpers.assert_same([*other], [*batches])


@pytest.mark.parametrize(
  ('layout', 'workers'),
  (
    ('buckets', 1),
    ('buckets', 2),
    ('padded', 2),
    ('sorted', 2),
    ('packed', 2),
    ('stream', 2),
  ),
)
def test_the_number_of_workers_changes_nothing(tmp_path, layout, workers):
  corpus, alone = helpers.unique_corpus(tmp_path, layout=layout)
  (tmp_path / 'again').mkdir()
  _, helped = helpers.unique_corpus(
    tmp_path / 'again', layout=layout, workers=workers
  )
  expected = helpers.take(pipeline.training_batches(corpus, alone), 20)
  batches = pipeline.training_batches(corpus, helped)
  helpers.assert_same(helpers.take(batches, 12), expected[:12])
  state = batches.get_state()
  helpers.assert_same(helpers.take(batches, 8), expected[12:])
  other = pipeline.training_batches(corpus, alone)
  other.set_state(state)
  helpers.assert_same(helpers.take(other, 8), expected[12:])
  batches.close()
  assert not multiprocessing.active_children()


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_checkpoint_brings_the_batches_back(tmp_path, layout):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  batches = pipeline.training_batches(corpus, cfg)
  helpers.take(batches, 11)
  with ocp.CheckpointManager(tmp_path / 'checkpoints') as manager:
    data = grain.checkpoint.CheckpointSave(batches)
    manager.save(1, args=ocp.args.Composite(data=data))
    expected = helpers.take(batches, 9)
    manager.wait_until_finished()
    other = pipeline.training_batches(corpus, cfg)
    data = grain.checkpoint.CheckpointRestore(other)
    manager.restore(1, args=ocp.args.Composite(data=data))
  helpers.assert_same(helpers.take(other, 9), expected)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_processes_share_held_out_batches_by_rows(tmp_path, layout):
  corpus, cfg = helpers.unique_corpus(
    tmp_path, layout=layout, evaluate={'batch_size': 4}
  )
  expected = [*pipeline.heldout_batches(corpus, cfg, 'validation', 2)]
  shares = [
    [
      *pipeline.heldout_batches(
        corpus, cfg, 'validation', 2, process_index=n, process_count=2
      )
    ]
    for n in range(2)
  ]
  helpers.assert_same(shares[0], [_rows(b, 0) for b in expected])
  helpers.assert_same(shares[1], [_rows(b, 1) for b in expected])


@pytest.mark.parametrize('layout', ('buckets', 'padded', 'sorted'))
def test_processes_share_batches_by_rows(tmp_path, layout):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  expected = helpers.take(pipeline.training_batches(corpus, cfg, 2), 20)
  for n in range(2):
    share = pipeline.training_batches(
      corpus, cfg, 2, process_index=n, process_count=2
    )
    own = [_rows(batch, n) for batch in expected]
    helpers.assert_same(helpers.take(share, 20), own)


@pytest.mark.parametrize('layout', ('packed', 'stream'))
def test_processes_read_their_own_shards(tmp_path, layout):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  counts = []
  for n in range(2):
    share = pipeline.training_batches(
      corpus, cfg, 2, process_index=n, process_count=2
    )
    early = helpers.count_targets(helpers.take(share, 3))
    counts.append((early, helpers.count_targets(helpers.take(share, 40))))
    assert next(share).tokens_BxL.shape == (2, cfg.data.length)
  boundary = corpus.tokenizer.boundary
  assert not (counts[0][0].keys() & counts[1][0].keys()) - {boundary}
  seen = sum((late for _, late in counts), collections.Counter())
  assert seen.keys() == {*range(len(helpers.UNIQUE)), boundary}


def _rows(batch, start):
  return batch._replace(
    **{
      name: array[start::2]
      for name, array in batch._asdict().items()
      if array is not None
    }
  )


@pytest.mark.parametrize('tokens_per_batch', (0, 100))
@pytest.mark.parametrize('layout', LAYOUTS)
def test_shapes_are_those_announced(tmp_path, layout, tokens_per_batch):
  corpus, cfg = helpers.unique_corpus(
    tmp_path, layout=layout, tokens_per_batch=tokens_per_batch
  )
  announced = pipeline.batch_shapes(corpus, cfg, multiple=2)
  batches = helpers.take(pipeline.training_batches(corpus, cfg, 2), 60)
  found = {batch.tokens_BxL.shape for batch in batches}
  assert found == {*announced} or (layout in POOLED and found < {*announced})
  assert announced == tuple(sorted(announced))
  for count, length in announced:
    assert count % 2 == 0
    assert not tokens_per_batch or 0 < count * length <= tokens_per_batch


def test_given_boundaries_are_the_lengths_of_the_buckets(tmp_path):
  corpus, cfg = helpers.unique_corpus(tmp_path, boundaries=(5, 24))
  assert pipeline.batch_shapes(corpus, cfg) == ((4, 5), (4, 24))


def test_a_bucket_that_no_row_can_fill_is_refused(tmp_path):
  (tmp_path / 'one.txt').write_text('x' * 40)
  cfg = helpers.configure(
    source='text',
    path=str(tmp_path / 'one.txt'),
    splits=(100, 0, 0),
    boundaries=(8, 64),
    length=64,
    batch_size=1,
  )
  corpus = pipeline.Corpus.open(cfg, tmp_path / 'work')
  message = r'boundaries=\(8, 64\): .*sampled rows, 41 tokens: begin with 41'
  with pytest.raises(errors.InputError, match=message):
    pipeline.training_batches(corpus, cfg)


def test_a_batch_is_as_long_as_its_longest_row_rounded_up(tmp_path):
  for layout in POOLED:
    (tmp_path / layout).mkdir()
    corpus, cfg = helpers.unique_corpus(
      tmp_path / layout, layout=layout, length=22, length_multiple=5
    )
    announced = pipeline.batch_shapes(corpus, cfg)
    assert announced == ((4, 5), (4, 10), (4, 15), (4, 20), (4, 22))
    batches = helpers.take(pipeline.training_batches(corpus, cfg), 50)
    for batch in batches:
      longest = int(batch.weights_BxL.sum(1).max())
      assert batch.tokens_BxL.shape[1] == min(-(-longest // 5) * 5, 22)
      assert batch.weights_BxL.any(1).all()


def test_rows_of_a_token_budget_grow_as_batches_shorten(tmp_path):
  corpus, cfg = helpers.unique_corpus(
    tmp_path, layout='sorted', tokens_per_batch=100
  )
  announced = pipeline.batch_shapes(corpus, cfg, multiple=2)
  assert announced == ((4, 24), (6, 16), (12, 8))
  cfg = dataclasses.replace(
    cfg, data=dataclasses.replace(cfg.data, layout='padded')
  )
  announced = pipeline.batch_shapes(corpus, cfg, multiple=2)
  assert announced == ((4, 8), (4, 16), (4, 24))


def test_a_larger_pool_pads_less(tmp_path):
  found = []
  for layout, pool in (('padded', 1), ('sorted', 2), ('sorted', 8)):
    folder = tmp_path / f'{layout}{pool}'
    folder.mkdir()
    corpus, cfg = helpers.unique_corpus(
      folder, layout=layout, pool=pool, length=304
    )
    batches = helpers.take(pipeline.training_batches(corpus, cfg), 96)
    found.append(efficiency(batches))
  assert found == sorted(found) and found[-1] > 1.5 * found[0]


@pytest.mark.parametrize(('layout', 'least'), (('packed', 0.9), ('stream', 1)))
def test_little_of_a_batch_is_padding(tmp_path, layout, least):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout, batch_size=6)
  batches = helpers.take(pipeline.training_batches(corpus, cfg), 100)
  assert efficiency(batches) >= least


def test_buckets_spare_padding(tmp_path):
  found = []
  for buckets in (1, 4):
    folder = tmp_path / str(buckets)
    folder.mkdir()
    corpus, cfg = helpers.unique_corpus(folder, length=304, buckets=buckets)
    batches = helpers.take(pipeline.training_batches(corpus, cfg), 100)
    found.append(efficiency(batches))
  assert found[1] > 2 * found[0] > 0.4


@pytest.mark.parametrize('layout', LAYOUTS)
def test_the_description_is_that_of_the_batches(tmp_path, layout):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout=layout)
  told = pipeline.describe(corpus, cfg, 2)
  batches = helpers.take(pipeline.training_batches(corpus, cfg, 2), 100)
  assert told.startswith(f'{layout}, ')
  shapes = pipeline.batch_shapes(corpus, cfg, 2)
  assert f'{len(shapes)} shape' in told
  if layout == 'stream':
    assert told.endswith('1 shape: 4x24, no padding')
    return
  share = re.search(r'padding efficiency (\d+)% \((\d+) sampled rows', told)
  assert abs(int(share[1]) / 100 - efficiency(batches)) < 0.06
  assert int(share[2]) == len(plan.sample(corpus, cfg.data, 0))


def test_a_carried_stream_reads_its_stretches_in_order(tmp_path):
  corpus, cfg = helpers.unique_corpus(
    tmp_path, layout='stream', carry_state=True
  )
  batches = helpers.take(pipeline.training_batches(corpus, cfg), 30)
  for row in range(4):
    tokens, targets, starts = (
      np.concatenate([getattr(batch, name)[row] for batch in batches])
      for name in ('tokens_BxL', 'targets_BxL', 'starts_BxL')
    )
    reads_on = tokens[1:] == targets[:-1]
    assert reads_on[starts[1:] == 0].all()
    assert starts[0] == 1 and 2 < starts.sum() < 40


def test_the_seed_decides_the_order(tmp_path):
  corpus, cfg = helpers.unique_corpus(tmp_path, layout='packed')
  (tmp_path / 'again').mkdir()
  _, other = helpers.unique_corpus(
    tmp_path / 'again', layout='packed', train={'seed': 1}
  )
  one, same, another = (
    next(pipeline.training_batches(corpus, c)) for c in (cfg, cfg, other)
  )
  helpers.assert_same([one], [same])
  assert not np.array_equal(one.tokens_BxL, another.tokens_BxL)


def test_a_small_state_holds_no_text(tmp_path):
  for layout in LAYOUTS:
    (tmp_path / layout).mkdir()
    corpus, cfg = helpers.unique_corpus(tmp_path / layout, layout=layout)
    batches = pipeline.training_batches(corpus, cfg)
    helpers.take(batches, 50)
    assert len(json.dumps(batches.get_state())) < 300


def test_held_out_rows_can_be_longer_or_shorter(tmp_path):
  corpus, cfg = helpers.unique_corpus(
    tmp_path, boundaries=(8, 24), evaluate={'batch_size': 2, 'length': 16}
  )
  batches = [*pipeline.heldout_batches(corpus, cfg, 'validation')]
  assert {batch.tokens_BxL.shape for batch in batches} == {(2, 8), (2, 16)}
  counts = helpers.count_targets(batches)
  assert sum(counts.values()) == len(helpers.UNIQUE) + len(helpers.SIZES)


def test_an_empty_split_is_refused_with_the_remedy(tmp_path):
  corpus, cfg = helpers.unique_corpus(tmp_path)
  with pytest.raises(errors.InputError, match="'test' holds no.*test_path"):
    pipeline.heldout_batches(corpus, cfg, 'test')


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path):
  corpus, cfg = helpers.unique_corpus(tmp_path)
  with pytest.raises(errors.InputError, match='data.batch_size gives 4 row'):
    pipeline.training_batches(corpus, cfg, multiple=5)
  with pytest.raises(errors.InputError, match='evaluate.batch_size gives 3'):
    pipeline.heldout_batches(corpus, cfg, 'validation', multiple=4)
  (tmp_path / 'again').mkdir()
  _, cfg = helpers.unique_corpus(tmp_path / 'again', tokens_per_batch=48)
  with pytest.raises(errors.InputError, match='data.tokens_per_batch gives 2'):
    pipeline.batch_shapes(corpus, cfg, multiple=4)


def test_more_processes_than_pieces_are_refused(tmp_path):
  (tmp_path / 'one.txt').write_text('short')
  cfg = helpers.configure(
    source='text',
    path=str(tmp_path / 'one.txt'),
    splits=(100, 0, 0),
    layout='packed',
  )
  corpus = pipeline.Corpus.open(cfg, tmp_path / 'work')
  with pytest.raises(errors.InputError, match='1 piece.* cannot be shared'):
    pipeline.training_batches(corpus, cfg, 2, process_index=1, process_count=2)


def test_the_tokenizer_of_the_work_folder_is_used_again(tmp_path):
  corpus, cfg = helpers.unique_corpus(tmp_path)
  path = tmp_path / 'work' / 'tokenizer.json'
  saved = json.loads(path.read_text())
  saved['characters'] += '\uffff'
  path.write_text(json.dumps(saved))
  again = pipeline.Corpus.open(cfg, tmp_path / 'work')
  assert again.tokenizer.size == corpus.tokenizer.size + 1


def test_a_tokenizer_of_another_kind_is_refused(tmp_path):
  helpers.unique_corpus(tmp_path)
  (tmp_path / 'again').mkdir()
  _, cfg = helpers.unique_corpus(tmp_path / 'again', tokenizer='bytes')
  with pytest.raises(errors.InputError, match="'bytes'.*kind 'characters'"):
    pipeline.Corpus.open(cfg, tmp_path / 'work')


def test_held_out_characters_that_were_not_trained_are_named(tmp_path, caplog):
  (tmp_path / 'train.txt').write_text('abc ' * 30)
  (tmp_path / 'validation.txt').write_text('ab ☃')
  cfg = helpers.configure(
    source='text',
    path=str(tmp_path / 'train.txt'),
    validation_path=str(tmp_path / 'validation.txt'),
    splits=(100, 0, 0),
    tokenizer='characters',
  )
  corpus = pipeline.Corpus.open(cfg, tmp_path / 'work')
  assert 'validation.txt' in caplog.text and '☃' in caplog.text
  counts = helpers.count_targets(
    pipeline.heldout_batches(corpus, cfg, 'validation')
  )
  assert counts[corpus.tokenizer.unknown] == 1


def test_pieces_are_scaled_by_the_bytes_of_a_token(tmp_path):
  corpus, _ = helpers.unique_corpus(tmp_path)
  assert corpus.bytes_per_token == 3


def test_no_text_to_train_on_is_refused(tmp_path):
  (tmp_path / 'one.txt').write_text('x')
  cfg = helpers.configure(
    source='text',
    path=str(tmp_path / 'one.txt'),
    splits=(90, 10, 0),
    split_by='position',
  )
  with pytest.raises(errors.InputError, match='no text to train on'):
    pipeline.Corpus.open(cfg, tmp_path / 'work')
