"""Schedules by a machine of integers, and by the least cost of all."""

import functools

import pytest

from rnn_jax.ops import remat_schedules

BLOCKS = (1, 2, 3, 7, 16, 33, 100)


def play(schedule, blocks):
  """Carries out the moves on positions; each reversal must meet its block."""
  slots = {0: 0} | {
    slot: at + 1
    for at, slot in enumerate(schedule.swept)
    if slot < schedule.kept
  }
  assert len(slots) <= schedule.kept
  for i, load in enumerate(schedule.loads):
    at = slots[load]
    for j in range(schedule.offsets[i], schedule.offsets[i + 1]):
      assert schedule.advanced[j] == at
      at += 1
      slots[schedule.stored[j]] = at
    assert at == blocks - 1 - i
    slots.pop(schedule.kept, None)


@pytest.mark.parametrize('name', remat_schedules.NAMES)
@pytest.mark.parametrize('blocks', BLOCKS)
def test_each_block_is_reversed_from_the_state_before_it(name, blocks):
  for kept in (0, 1, 2, 5) if name == 'binomial' else (0,):
    schedule = remat_schedules.make(name, blocks, kept)
    play(schedule, blocks)
    assert len(schedule.loads) == len(schedule.swept) == blocks
    if kept:
      assert schedule.kept == min(kept, blocks)


@functools.cache
def cheapest(blocks, states):
  """Advances by trying every place for the next state."""
  if blocks == 1:
    return 0
  if states == 0:
    return blocks * (blocks - 1) // 2
  return min(
    ahead + cheapest(blocks - ahead, states - 1) + cheapest(ahead, states)
    for ahead in range(1, blocks)
  )


@pytest.mark.parametrize('kept', (1, 2, 3, 4, 6))
def test_binomial_is_the_cheapest_of_all(kept):
  for blocks in (1, 2, 5, 10, 21, 40, 60):
    assert remat_schedules.least(blocks, kept - 1) == cheapest(blocks, kept - 1)
    schedule = remat_schedules.make('binomial', blocks, kept)
    # The first sweep, up to the last state that it keeps, is the forward pass.
    slots = enumerate(schedule.swept, 1)
    swept = [i for i, slot in slots if slot < schedule.kept]
    done = len(schedule.advanced) + max(swept, default=0)
    assert done == cheapest(blocks, kept - 1)


def test_uniform_stores_all_states_and_logarithmic_few():
  assert remat_schedules.make('uniform', 5000).recomputed == 5000
  uniform = remat_schedules.make('uniform', 64)
  assert uniform.kept == 64 and uniform.recomputed == 64
  halves = remat_schedules.make('logarithmic', 64)
  assert halves.kept == 7
  # Each of log2(64) levels advances half of the row, but the first sweep does
  # its rightmost part.
  assert halves.recomputed == 64 + 6 * 32 - 63
  best = remat_schedules.make('binomial', 64)
  assert best.kept == 7 and best.recomputed < halves.recomputed


def test_bad_arguments_are_refused():
  with pytest.raises(ValueError, match="name='log'.*'logarithmic'"):
    remat_schedules.make('log', 4)
  with pytest.raises(ValueError, match='blocks=0'):
    remat_schedules.make('uniform', 0)
