"""The length schedule: stages in turn, each as if it were the only one."""

import itertools

import grain
import numpy as np
import pytest

from rnn_jax import config
from rnn_jax.data import loader
from rnn_jax.data import pipeline
from rnn_jax.data.batching import length_schedule
from rnn_jax.data.batching.layouts import packed
from tests.support import corpora


def growing():
  """Two examples in rows of 4, two in rows of 8."""
  stages = []
  for length, first, end in ((4, 0, 2), (8, 2, 4)):
    rows = grain.MapDataset.source([np.arange(n) for n in (4, 5, 6, 9)])
    examples = loader.Loader(rows[:end], 0)
    examples.set_state({'position': first})
    stages.append(packed.Packed(examples, (1, length)))
  return length_schedule.StagedBatches(stages)


def test_each_stage_has_its_length_and_epochs():
  data = config.section(
    'data',
    length_schedule=(16, 64),
    length_schedule_epochs=3,
    length=256,
    boundaries=(8, 32, 64, 256),
  )
  first, second, last = length_schedule.stages(data)
  assert (first.data.length, first.first, first.end) == (16, 0, 3)
  assert (second.data.length, second.first, second.end) == (64, 3, 6)
  assert (last.data.length, last.first, last.end) == (256, 6, None)
  assert first.data.boundaries == (8, 16)
  assert second.data.boundaries == (8, 32, 64)
  assert last.data.boundaries == (8, 32, 64, 256)
  assert not any(stage.data.length_schedule for stage in (first, second, last))


def test_without_a_schedule_one_stage_is_all():
  data = config.section('data')
  assert length_schedule.stages(data) == [length_schedule.Stage(data, 0, None)]


def test_one_stage_follows_the_other_and_any_state_restores():
  batches, states = growing(), []
  lengths = []
  for _ in range(4):
    states.append(batches.get_state())
    lengths.append(next(batches).tokens_BxL.shape[1])
  assert lengths == [4, 4, 8, 8]
  assert [state['stage'] for state in states] == [0, 0, 0, 1]
  whole = [batch.targets_BxL.tolist() for batch in growing_to_the_end()]
  for cut in (3, 1, 2, 0):
    batches.set_state(states[cut])
    rest = itertools.islice(batches, 4 - cut)
    assert [batch.targets_BxL.tolist() for batch in rest] == whole[cut:]


def growing_to_the_end():
  return itertools.islice(growing(), 4)


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_rows_grow_and_every_stage_predicts_every_token_once(tmp_path, layout):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, layout=layout, length_schedule=(6, 12), length_schedule_epochs=2
  )
  batches = pipeline.training_batches(corpus, cfg)
  by_stage = [[], [], []]
  while len(by_stage[2]) < 20:
    batch = next(batches)
    by_stage[batches.get_state()['stage']].append(batch)
  longest = [max(b.tokens_BxL.shape[1] for b in some) for some in by_stage]
  assert longest == [6, 12, 24]
  for some in by_stage[:2]:
    counts = corpora.count_targets(some)
    assert {counts[n] for n in range(len(corpora.UNIQUE))} == {2}
