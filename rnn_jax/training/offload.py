"""Where arrays lie that only the update of a step needs: device, or host.

On the host they take nothing of the device's memory between updates; a step
moves them there and back. The numbers are the same.
"""

import jax

from rnn_jax import host


def to_host(sharding):
  """The same sharding in the host's memory, for `optimizer.offload`.

  Raises:
    InputError: the devices reach no memory of the host.
  """
  host.check_pinned(sharding.addressable_devices, 'optimizer.offload=True')
  return sharding.with_memory_kind(host.PINNED)


def to_device(tree):
  """Arrays of a traced step in the device's memory, wherever they were."""
  return jax.device_put(tree, jax.memory.Space.Device)
