"""The shardings of a train state on a mesh, and its bytes per device.

Arrays that only a step's update needs may be in the host's memory: a step moves
them to the device and back. The numbers are the same.
"""

import functools
import math
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import jax

from rnn_jax.ops import devices
from rnn_jax.parallel import fsdp
from rnn_jax.parallel import many_devices
from rnn_jax.parallel import rules as rules_lib
from rnn_jax.system import host

PyTree = Any


class Placement:
  """The shardings of a model's parameters and of what goes with them.

  Attributes:
    mesh: of the devices.
    rules: how parameters are sharded.
    shapes: of the parameters.
    logical_axes: of each parameter, a tree like the parameters.
    axes_outside_layers: the same, '_' for those that are stacked over layers.
    stacked: names of these, as 'stack/blocks/mlp/up/kernel'.
    replicated: the sharding of what every device has all of.
  """

  def __init__(
    self,
    mesh: jax.sharding.Mesh,
    options: Any,
    shapes: PyTree,
    names: Mapping[str, str],
  ) -> None:
    """Shards parameters.

    Args:
      mesh: of the devices.
      options: section `mesh` of a config, config.Mesh.
      shapes: of the parameters.
      names: their logical axes by path.

    Raises:
      InputError: the mesh doesn't fit a parameter.
    """
    self.mesh = mesh
    self.rules = rules_lib.parse(options.rules, options.zero)
    self._devices = many_devices.ManyDevices(
      self.rules, options.micro_batches, options.schedule
    )
    self.logical_axes = fsdp.logical_axes(shapes, names)
    # Those of a layer are gathered where it runs (models/blocks.py).
    self.axes_outside_layers = jax.tree.map(
      lambda x: '_' if x.startswith('R') else x, self.logical_axes
    )
    self.stacked = frozenset(
      '/'.join(_path(path))
      for path, x in jax.tree.leaves_with_path(self.logical_axes)
      if x.startswith('R')
    )
    self.replicated = rules_lib.sharding(mesh)
    self.shapes = shapes
    self.specs = functools.cache(self._specs)
    self.specs('optimizer')  # the most that is sharded: refuses at once

  def _specs(self, kind):
    if kind == 'error_feedback':  # a gradient for each device along `data`
      spec = jax.sharding.PartitionSpec
      return jax.tree.map(lambda x: spec('data', *x), self.specs('gradients'))

    def spec(path, shape, logical_axes):
      try:
        return self.rules.spec(logical_axes, shape.shape, self.mesh.shape, kind)
      except ValueError as error:
        name = '/'.join(key.key for key in path)
        raise type(error)(f'{error} ({name})') from error

    return jax.tree.map_with_path(spec, self.shapes, self.logical_axes)

  def shardings(self, kind: str) -> PyTree:
    """Returns shardings, a tree like the parameters.

    Args:
      kind: 'parameters', 'gradients', 'optimizer' or 'error_feedback'.
    """
    place = functools.partial(rules_lib.sharding, self.mesh)
    return jax.tree.map(place, self.specs(kind))

  def optimizer_shardings(self, state: PyTree) -> PyTree:
    """Returns the shardings of an optimizer's state.

    A leaf with a parameter's path and shape is sharded like the parameter; the
    others are replicated.
    """
    known = {
      _path(path): (shape.shape, spec)
      for (path, shape), spec in zip(
        jax.tree.leaves_with_path(self.shapes),
        jax.tree.leaves(self.specs('optimizer')),
        strict=True,
      )
    }

    def place(path, leaf):
      names = _path(path)
      for begin in range(len(names)):
        shape, spec = known.get(names[begin:], (None, None))
        if shape == leaf.shape:
          return rules_lib.sharding(self.mesh, spec)
      return self.replicated

    return jax.tree.map_with_path(place, state)

  def carry_specs(self, logical_axes: PyTree) -> PyTree:
    """Returns the specs of a recurrent state, from its logical axes."""
    return jax.tree.map(self.rules.state_spec, logical_axes)

  def run(
    self, function: Callable[..., PyTree], inputs: PyTree, outputs: PyTree
  ) -> Callable[..., PyTree]:
    """Returns `function` as a program of all devices, each on its shards.

    Args:
      function: of a device's shards of the inputs.
      inputs: a tree of PartitionSpec, as of `jax.shard_map`.
      outputs: the same for the outputs.
    """
    if self.mesh.size == 1:
      return function
    return jax.shard_map(
      devices.use(self._devices)(function),
      mesh=self.mesh,
      in_specs=inputs,
      out_specs=outputs,
      check_vma=False,
    )


def to_host(sharding: jax.sharding.Sharding) -> jax.sharding.Sharding:
  """Returns the same sharding in the host's memory, for `optimizer.offload`.

  Raises:
    InputError: the devices can't address the host's memory.
  """
  host.check_pinned(sharding.addressable_devices, 'optimizer.offload=True')
  return sharding.with_memory_kind(host.PINNED)


def to_device(tree: PyTree) -> PyTree:
  """Moves arrays of a traced step to the device's memory."""
  return jax.device_put(tree, jax.memory.Space.Device)


def device_bytes(tree: PyTree, shardings: PyTree) -> int:
  """Returns the bytes that a device has of arrays, or of their shapes."""
  shardings = jax.tree.broadcast(shardings, tree)
  sizes = jax.tree.map(
    lambda x, sharding: (
      math.prod(sharding.shard_shape(x.shape)) * x.dtype.itemsize
    ),
    tree,
    shardings,
  )
  return sum(jax.tree.leaves(sizes))


def _path(path):
  return tuple(
    str(getattr(key, 'key', getattr(key, 'name', key))) for key in path
  )
