"""The length schedule: stages in turn, each as if it were the only one."""

import pytest

from rnn_jax import config
from rnn_jax.data import pipeline
from rnn_jax.data.batching import length_schedule
from rnn_jax.data.batching import plan as plan_lib
from tests.support import corpora


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


@pytest.mark.parametrize('layout', corpora.LAYOUTS)
def test_rows_grow_and_every_stage_predicts_every_token_once(tmp_path, layout):
  corpus, cfg = corpora.unique_corpus(
    tmp_path, layout=layout, length_schedule=(6, 12), length_schedule_epochs=2
  )
  batches = plan_lib.Batches(pipeline.training_stages(corpus, cfg))
  by_stage = [[], [], []]
  for planned in batches.planned():
    by_stage[planned.stage].append(batches.make(planned))
    if len(by_stage[2]) == 20:
      break
  longest = [max(b.tokens_BxL.shape[1] for b in some) for some in by_stage]
  assert longest == [6, 12, 24]
  for some in by_stage[:2]:
    counts = corpora.count_targets(some)
    assert {counts[n] for n in range(len(corpora.UNIQUE))} == {2}
