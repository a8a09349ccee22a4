"""What can't fit is refused by its size, with both numbers."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.system import bounds
from rnn_jax.system import host


def test_a_size_above_the_memory_is_refused_with_both_numbers():
  bounds.check(2**20, 'x', 'y', available=2**20)
  with pytest.raises(errors.InputError) as caught:
    bounds.check(3 * 2**30, 'data.batch_size=9', 'give less', available=2**30)
  assert str(caught.value) == (
    'data.batch_size=9: this needs 3 GiB or more, and 1 GiB are free: give less'
  )


def test_the_machine_s_memory_is_what_counts(monkeypatch):
  monkeypatch.setattr(host, 'available_bytes', lambda: 1000)
  assert bounds.free() == 1000
  with pytest.raises(errors.InputError):
    bounds.check(1001, 'x', 'y')


def test_a_machine_that_does_not_say_allows_anything(monkeypatch):
  def unknown():
    raise errors.InputError('unknown')

  monkeypatch.setattr(host, 'available_bytes', unknown)
  bounds.check(2**50, 'x', 'y')


def test_devices_that_know_their_memory_are_added(monkeypatch):
  class Device:
    def memory_stats(self):
      return {'bytes_limit': 5}

  monkeypatch.setattr(jax, 'local_devices', lambda: [Device(), Device()])
  monkeypatch.setattr(jax, 'device_count', lambda: 4)
  assert bounds.of_devices() == 20


def test_a_model_that_is_too_large_names_its_largest_keys():
  config = config_lib.parse(config_lib.default())
  like = jax.ShapeDtypeStruct((2**40, 2**10), jnp.float32)
  sizes = values.largest_sizes(config)
  with pytest.raises(
    errors.InputError, match=r'parameters with .*model\.width=128'
  ):
    bounds.check_arrays({'w': like}, f'parameters with {sizes}')
