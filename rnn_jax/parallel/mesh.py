"""The mesh of devices, and arrays on it.

Its axes are those of axes.py, in that order: neighbours along `tensor` are
neighbours in the machine, copies along `data` are furthest apart.
"""

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils

from rnn_jax import errors
from rnn_jax.parallel import axes
from rnn_jax.parallel import rules

REST = -1  # a size: what the other axes leave


def make(
  options=None, devices: Sequence[jax.Device] | None = None
) -> jax.sharding.Mesh:
  """Returns the mesh of a config's section `mesh`.

  Args:
    options: config.Mesh; without it all devices are along `data`.
    devices: all of the job's if None.

  Raises:
    InputError: the sizes don't make up the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  shape = sizes(options, len(devices))
  if devices[0].platform == 'cpu':
    placed = np.array(devices).reshape(shape)
  else:
    placed = mesh_utils.create_device_mesh(
      shape, devices, allow_split_physical_axes=True
    )
  return jax.sharding.Mesh(placed, axes.NAMES)


def sizes(options, count: int) -> tuple[int, ...]:
  """Returns the sizes of all axes for so many devices.

  Raises:
    InputError: as `make`.
  """
  if options is None:
    return (count, *[1] * (len(axes.NAMES) - 1))
  given = [getattr(options, name) for name in axes.NAMES]
  known = math.prod(n for n in given if n != REST)
  told = ', '.join(
    f'mesh.{name}={n}' for name, n in zip(axes.NAMES, given, strict=True)
  )
  if count % known or (REST not in given and known != count):
    raise errors.InputError(
      f'{told}: {count} device(s) are there, and these sizes make up {known}: '
      f'give sizes whose product is {count}, one of them may be -1'
    )
  return tuple(count // known if n == REST else n for n in given)


def row_multiple(mesh: jax.sharding.Mesh, options) -> int:
  """Returns what the rows of a batch must be a multiple of: the devices that
  share them, times the micro-batches that each has in a pipeline."""
  shares = math.prod(mesh.shape[axis] for axis in rules.ROWS)
  stages = mesh.shape['pipe']
  return shares * (options.micro_batches or stages if stages > 1 else 1)


def put(tree, shardings):
  """Places arrays that every process has whole on the mesh.

  `shardings` is a prefix tree. Each device gets its own part, so that what a
  program computes doesn't depend on how many processes there are.
  """
  shardings = jax.tree.broadcast(shardings, tree)
  return jax.tree.map(_put, tree, shardings)


def _put(x, sharding):
  x = np.asarray(x)
  with jax.transfer_guard_host_to_device('allow'):  # this one is meant
    return jax.make_array_from_callback(x.shape, sharding, lambda part: x[part])
