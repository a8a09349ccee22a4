"""An optimizer's state on the host: the same numbers, from another memory."""

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.parallel import placement
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.training import train_state
from tests.support import saved
from tests.training import test_step


def kinds(tree):
  return {leaf.sharding.memory_kind for leaf in jax.tree.leaves(tree)}


def test_an_offloaded_run_is_the_same_to_the_bit(tmp_path):
  changes = [  # a momentum, and the point where gradients are taken
    ('optimizer.name', 'sgd'),
    ('optimizer.ema_decay', 0.9),
    ('model.layers', 1),
  ]
  expected, _ = test_step.run(changes, count=2)
  changes += [('optimizer.offload', True)]
  programs = test_step.fresh(changes)
  state = programs.states.init(8)
  state, _ = programs.train_step(state, test_step.draw(0))
  assert kinds(state.opt_state) == {'pinned_host'}
  assert 'pinned_host' not in kinds(state.params)
  state = restored(programs, state, tmp_path)
  assert kinds(state.opt_state) == {'pinned_host'}
  state, _ = programs.train_step(state, test_step.draw(1))
  assert programs.traces == 1 and programs._train_step._cache_size() == 1
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), expected)


def restored(programs, state, folder):
  checkpoints = checkpoint.Checkpoints(folder, keep=1)
  try:
    saved.save(checkpoints, 2, state.entries())
    checkpoints.wait()
    like = programs.states.init(8).entries()
    _, entries, _ = saved.restore(checkpoints, like)
  finally:
    checkpoints.close()
  return train_state.TrainState(**entries)


class Memory:
  kind = 'device'


class Device:
  device_kind = 'Abacus'

  def addressable_memories(self):
    return [Memory()]


class Sharding:
  addressable_devices = (Device(),)


def test_a_device_without_a_host_s_memory_is_refused():
  with pytest.raises(errors.InputError) as caught:
    placement.to_host(Sharding())
  assert str(caught.value) == (
    "optimizer.offload=True: Abacus has ['device'] memory, not 'pinned_host': "
    'give False'
  )
