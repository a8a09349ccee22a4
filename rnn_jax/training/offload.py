"""Keeps arrays that only a step's update needs in the host's memory.

A step moves them to the device and back. The numbers are the same.
"""

from typing import Any

import jax

from rnn_jax.system import host


def to_host(sharding: jax.sharding.Sharding) -> jax.sharding.Sharding:
  """Returns the same sharding in the host's memory, for `optimizer.offload`.

  Raises:
    InputError: the devices can't address the host's memory.
  """
  host.check_pinned(sharding.addressable_devices, 'optimizer.offload=True')
  return sharding.with_memory_kind(host.PINNED)


def to_device(tree: Any) -> Any:
  """Moves arrays of a traced step to the device's memory."""
  return jax.device_put(tree, jax.memory.Space.Device)
