"""Where all that a training step keeps lies on a mesh, and how much that is."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax

from rnn_jax.ops import devices
from rnn_jax.parallel import fsdp
from rnn_jax.parallel import many_devices
from rnn_jax.parallel import rules as rules_lib

PyTree = Any


class Placement:
  """The shardings of a model's parameters and of what goes with them.

  Attributes:
    mesh: of the devices.
    rules: rules.Rules.
    shapes: of the parameters.
    logical_axes: of each parameter, a tree like the parameters.
    axes_outside_layers: '_' for those that are stacked over layers.
    stacked: names of these, as 'stack/blocks/mlp/up/kernel'.
    whole: the sharding of what every device has all of.
  """

  def __init__(
    self,
    mesh: jax.sharding.Mesh,
    options: Any,
    shapes: PyTree,
    names: dict[str, str],
  ):
    """Places parameters.

    Args:
      mesh: of the devices.
      options: section `mesh` of a config.
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
    # A layer's are gathered in its turn (models/blocks.py).
    self.axes_outside_layers = jax.tree.map(
      lambda x: '_' if x.startswith('R') else x, self.logical_axes
    )
    self.stacked = frozenset(
      '/'.join(_path(path))
      for path, x in jax.tree.leaves_with_path(self.logical_axes)
      if x.startswith('R')
    )
    self.whole = rules_lib.sharding(mesh)
    self.shapes = shapes
    self.specs = functools.cache(self._specs)
    self.specs('optimizer')  # the most that is cut: refuses at once

  def _specs(self, kept):
    if kept == 'residual':  # a gradient for each device along `data`
      spec = jax.sharding.PartitionSpec
      return jax.tree.map(lambda x: spec('data', *x), self.specs('gradients'))

    def spec(path, shape, logical_axes):
      try:
        return self.rules.spec(logical_axes, shape.shape, self.mesh.shape, kept)
      except ValueError as error:
        name = '/'.join(key.key for key in path)
        raise type(error)(f'{error} ({name})') from error

    return jax.tree.map_with_path(spec, self.shapes, self.logical_axes)

  def shardings(self, kept: str) -> PyTree:
    """Returns the shardings of 'parameters', 'gradients' or the 'residual' of
    compressed ones, a tree like them."""
    place = functools.partial(rules_lib.sharding, self.mesh)
    return jax.tree.map(place, self.specs(kept))

  def of_optimizer(self, state: PyTree) -> PyTree:
    """Returns the shardings of an optimizer's state.

    What has a parameter's path and shape is cut as that is, the rest is whole.
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
      return self.whole

    return jax.tree.map_with_path(place, state)

  def of_carry(self, logical_axes: PyTree) -> PyTree:
    """Returns the specs of a recurrent state, from the logical axes."""
    return jax.tree.map(self.rules.state_spec, logical_axes)

  def run(self, function: Callable, inputs: PyTree, outputs: PyTree):
    """Returns `function` as a program of all devices, each on its share.

    `inputs` and `outputs` are trees of PartitionSpec, as of `jax.shard_map`.
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


def device_bytes(tree: PyTree, shardings: PyTree) -> int:
  """Returns the bytes that a device has of arrays, or of shapes of arrays."""
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
