"""The mesh of devices, and arrays on it.

Its axes are those of axes.py, in that order: devices that are neighbors along
`tensor` are neighbors in the machine, copies along `data` are furthest apart.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils

from rnn_jax import errors
from rnn_jax.parallel import axes
from rnn_jax.parallel import rules

REST = -1  # as a size: what the other axes leave

PyTree = Any


def make(
  options: Any = None, devices: Sequence[jax.Device] | None = None
) -> jax.sharding.Mesh:
  """Returns the mesh of a config's section `mesh`.

  Args:
    options: config.Mesh; None: all devices are along `data`.
    devices: those of the mesh; None: all of the job's.

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


def sizes(options: Any, count: int) -> tuple[int, ...]:
  """Returns the sizes of all axes for `count` devices.

  Raises:
    InputError: as `make`.
  """
  if options is None:
    return (count, *[1] * (len(axes.NAMES) - 1))
  given = [getattr(options, name) for name in axes.NAMES]
  known = fewest(options)
  options_given = ', '.join(
    f'mesh.{name}={n}' for name, n in zip(axes.NAMES, given, strict=True)
  )
  if count % known or (REST not in given and known != count):
    raise errors.InputError(
      f'{options_given}: the job has {count} device(s), and these sizes make '
      f'up {known}: give sizes whose product is {count}; one of them may be -1'
    )
  return tuple(count // known if n == REST else n for n in given)


def fewest(options: Any) -> int:
  """Returns the smallest number of devices that the sizes of a config allow."""
  given = [getattr(options, name) for name in axes.NAMES]
  return math.prod(n for n in given if n != REST)


def row_multiple(mesh: jax.sharding.Mesh, options: Any) -> int:
  """Returns what the number of rows of a batch must be a multiple of.

  That is the number of devices that share rows, times the micro-batches of each
  in a pipeline; `options` is config.Mesh.
  """
  shards = math.prod(mesh.shape[axis] for axis in rules.ROWS)
  stages = mesh.shape['pipe']
  return shards * (options.micro_batches or stages if stages > 1 else 1)


def own_rows(
  sharding: jax.sharding.NamedSharding,
) -> Callable[[int], np.ndarray] | None:
  """Returns which rows of an array of all rows this process's devices take.

  Args:
    sharding: of arrays whose axes are rows and time.

  Returns:
    A function of the number of rows, which returns whether each is; None: they
    take all, in a job of one process.
  """
  if jax.process_count() == 1:
    return None

  def own(rows: int) -> np.ndarray:
    # Time may be sharded, too, by some devices at most.
    shape = rows, math.prod(sharding.mesh.shape.values())
    taken = np.zeros(rows, bool)
    for index in sharding.addressable_devices_indices_map(shape).values():
      assert index is not None
      taken[index[0]] = True
    return taken

  return own


def put(tree: PyTree, shardings: PyTree) -> PyTree:
  """Puts arrays on the mesh, of which every process has all.

  Each device gets its own shard, so that the numbers that a program computes
  don't depend on the number of processes.

  Args:
    tree: arrays.
    shardings: a prefix tree.
  """
  shardings = jax.tree.broadcast(shardings, tree)
  return jax.tree.map(_put, tree, shardings)


def _put(x, sharding):
  x = np.asarray(x)
  with jax.transfer_guard_host_to_device('allow'):  # this one is intended
    return jax.make_array_from_callback(
      x.shape, sharding, lambda index: x[index]
    )
