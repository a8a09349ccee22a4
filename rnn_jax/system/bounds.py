"""Refuses what this machine can't hold, before any of it is made.

A size here is the least that something needs: what passes may still run out of
memory, and then errors.explain says so.
"""

from typing import Any

import jax

from rnn_jax import errors
from rnn_jax.system import host


def check(
  needed: int, what: str, remedy: str, available: int | None = None
) -> None:
  """Checks that `needed` bytes are available.

  Args:
    needed: bytes, the least that it takes.
    what: needs them, for the message.
    remedy: for the message.
    available: bytes; None: the free memory of this machine.

  Raises:
    InputError: they aren't; it has both numbers.
  """
  if available is None:
    available = free()
  if needed > available:
    raise errors.InputError(
      f'{what}: this needs {gib(needed)} or more, and {gib(available)} are '
      f'free: {remedy}'
    )


def check_arrays(arrays: Any, what: str) -> None:
  """Checks that the devices can hold a model's arrays.

  Args:
    arrays: a tree of them, or of their shapes.
    what: they are, for the message.

  Raises:
    InputError: they can't.
  """
  check(
    sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(arrays)),
    what,
    'give a smaller model, or more devices',
    of_devices(),
  )


def free() -> int:
  """Returns the free bytes of this machine; many, if it doesn't say."""
  try:
    return host.available_bytes()
  except errors.InputError:
    return host.UNLIMITED


def of_devices() -> int:
  """Returns the bytes of all devices of the job; on CPUs what is free here."""
  devices = jax.local_devices()
  hosts = jax.device_count() // len(devices)
  stats = [device.memory_stats() or {} for device in devices]
  if all('bytes_limit' in stat for stat in stats):
    return hosts * sum(stat['bytes_limit'] for stat in stats)
  return hosts * free()


def gib(size: int) -> str:
  """Returns bytes as GiB, for messages."""
  return f'{size / 2**30:,.3g} GiB'
