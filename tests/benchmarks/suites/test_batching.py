"""Batches of each kind are read to their end, and reported by data set."""

import pytest

from benchmarks.suites import batching
from rnn_jax.training.memory import batch_size
from tests.benchmarks import made

SMALL = {'layers': 1, 'width': 16, 'mlp_width': 0, 'block': 'plain'}


@pytest.mark.parametrize(
  'data',
  (
    {'layout': 'sorted', 'pool': 2},
    {'layout': 'stream', 'segment_tokens': 64},
    {'boundaries': (20, 64)},
    {'length_schedule': (16, 100)},
    {
      'curriculum': 'length',
      'curriculum_shares': (50,),
      'rarity_buckets': 2,
    },
  ),
  ids=lambda data: [*data][0],
)
def test_an_epoch_is_read_to_its_end(tmp_path, monkeypatch, data):
  made.give_data(tmp_path, monkeypatch, 'a={path}:line')
  monkeypatch.setattr(batching, '_step_seconds', lambda *_: 1.0)
  small = {'tokens_per_batch': 256, 'workers': 0}
  values = batching.epoch(2, 'a', small | data)
  assert values['examples'] == 59 and values['repeats'] == 2
  assert values['length'] == 60
  # Two epochs, what waits at their end apart: bytes and a boundary each.
  tokens = sum(range(1, 60)) + 59
  assert 0.7 * tokens < values['tokens'] < 1.3 * tokens
  assert 0 < values['padding_efficiency'] <= 1
  assert 1 <= len(values['shapes']) <= values['possible_shapes']


def test_a_budget_decides_the_rows_and_steps_are_timed(tmp_path, monkeypatch):
  monkeypatch.setattr(batch_size, 'rows_for_budget', lambda *_: 8)
  made.give_data(tmp_path, monkeypatch, 'a={path}:line')
  monkeypatch.setattr(batching, 'MODEL', SMALL)
  budget = {'tokens_per_batch': 0, 'memory_gib': 0.02, 'workers': 0}
  values = batching.epoch(1, 'a', budget | {'buckets': 1})
  assert values['shapes'] == [(8, 60)] and values['batch_tokens'] == 8 * 60
  assert values['trained_per_second'] > 0
