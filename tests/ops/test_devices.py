"""What models ask of devices, on one device."""

import jax
import numpy as np
import pytest

from rnn_jax.ops import devices
from rnn_jax.parallel import many_devices


def public(kind):
  return {name for name in vars(kind) if not name.startswith('_')}


def test_devices_of_a_mesh_answer_all_that_one_device_does():
  missing = public(devices.OneDevice) - public(many_devices.ManyDevices)
  assert not missing


def test_outside_of_a_mesh_many_devices_answer_as_one():
  one, many = devices.OneDevice(), many_devices.ManyDevices()
  for name in ('time_shards', 'time_shard', 'stages', 'stage', 'interleaves'):
    assert getattr(one, name) == getattr(many, name)
  for axis in 'HFV':
    assert one.shards(axis) == many.shards(axis) == 1
    assert one.axis_name(axis) == many.axis_name(axis) == ''


def test_the_devices_in_use_end_with_their_block():
  many = many_devices.ManyDevices()
  assert type(devices.current()) is devices.OneDevice
  with pytest.raises(KeyError), devices.use(many):
    assert devices.current() is many
    raise KeyError
  assert type(devices.current()) is devices.OneDevice
  assert devices.use(many)(devices.current)() is many


def test_the_loss_of_stages_is_that_of_their_output():
  def stage(params, x, state, extra, key):
    del key
    return params * x + extra, state + 1

  def loss(head, x, extra, key):
    del extra, key
    return head * (x**2).sum(), {'rows': x.shape[0]}

  x, extra = np.arange(3.0), np.ones(3)
  inputs = devices.StageInputs(x, np.zeros(2), extra)
  run = devices.OneDevice().run_stages_and_loss
  objective, (sums, state) = run(stage, loss, 2.0, 3.0, inputs)
  assert objective == 3 * (1 + 9 + 25)
  assert sums == {'rows': 3}
  np.testing.assert_array_equal(state, 1)
  slope = jax.grad(lambda p: run(stage, loss, p, 3.0, inputs)[0])(2.0)
  assert slope == 3 * (2 * 3 * 1 + 2 * 5 * 2)
