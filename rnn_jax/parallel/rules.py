"""How arrays are sharded: from logical axes to axes of the mesh.

A rule 'D=fsdp' shards every axis of a parameter that is a model width over the
mesh's axis `fsdp`; 'D=data+fsdp' shards it over both. `zero` says how much of
the state is sharded over the axes that only share rows, data and fsdp
(Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", 2020):

    0   nothing: every device keeps all of the state
    1   the optimizer's state
    2   and gradients
    3   and parameters, which are gathered where they are used (FSDP)

All of these are sharded over `tensor`, `pipe` and `expert` whatever `zero` is,
because the work on them is. Rows and steps need no rule: B is sharded over
data, fsdp and expert, L over sequence.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import NoReturn

import jax

from rnn_jax import errors
from rnn_jax import shapes
from rnn_jax.parallel import axes as axes_lib

STORAGE = ('data', 'fsdp')  # they shard rows, and storage but not work
ROWS = (*STORAGE, 'expert')  # all that shard rows
STAGES = {'optimizer': 1, 'gradients': 2, 'parameters': 3}
# The logical axes whose work a mesh axis can shard; the code must follow.
WORK = {'tensor': 'HFV', 'expert': 'E', 'pipe': 'R', 'sequence': ''}
BATCH = {'B': ROWS, 'L': ('sequence',)}
KEY = 'mesh.rules'

PartitionSpec = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True)
class Rules:
  """Which mesh axes shard which logical axes of the state.

  Attributes:
    pairs: (logical axis, mesh axes) of each rule.
    zero: see the module's docstring.
  """

  pairs: tuple[tuple[str, tuple[str, ...]], ...] = ()
  zero: int = 3

  def axes(self, axis: str) -> tuple[str, ...]:
    """Returns the mesh axes that shard a logical axis."""
    return dict(self.pairs).get(axis, ())

  def storage(self, axis: str) -> tuple[str, ...]:
    """Returns those of them that shard its storage, but not the work on it."""
    return tuple(name for name in self.axes(axis) if name in STORAGE)

  def work(self, axis: str) -> tuple[str, ...]:
    """Returns those that shard the work on it."""
    return tuple(name for name in self.axes(axis) if name not in STORAGE)

  def shards(self, axis: str) -> int:
    """Returns how many devices share the work on a logical axis.

    That is inside a program of the mesh; 1 outside.
    """
    return math.prod(axes_lib.size(name) for name in self.work(axis))

  def state_spec(self, logical_axes: str) -> PartitionSpec:
    """Returns the sharding of a recurrent state, that of the work on it."""
    return PartitionSpec(
      *(
        BATCH.get(axis) or self.work(axis) or None
        for axis in logical_axes.split('x')
      )
    )

  def is_used(self) -> bool:
    """Returns whether parameters are sharded; False outside of a mesh."""
    return any(
      axes_lib.size(name) > 1 for _, names in self.pairs for name in names
    )

  def gathers(self) -> bool:
    """Returns whether parameters are gathered where they are used.

    False outside of a mesh.
    """
    storage = {name for axis, _ in self.pairs for name in self.storage(axis)}
    sharded = self.zero == STAGES['parameters']
    return sharded and any(axes_lib.size(name) > 1 for name in storage)

  def spec(
    self,
    logical_axes: str,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    kind: str,
  ) -> PartitionSpec:
    """Returns the sharding of a parameter, or of what goes with it.

    Args:
      logical_axes: of the parameter, as 'DxF', see fsdp.py; no rule shards '_'.
      shape: its whole shape.
      sizes: of the mesh's axes.
      kind: 'parameters', 'gradients' or 'optimizer'.

    Raises:
      InputError: two axes are sharded over one axis of the mesh, or one has a
        size that isn't a multiple of the mesh's. (The vocabulary is then not
        sharded.)
    """
    own = logical_axes.partition('+')[0]
    spec: list[str | tuple[str, ...] | None] = []
    taken: dict[str, str] = {}
    for axis, length in zip(own.split('x'), shape, strict=True):
      names = self.axes(axis)
      if self.zero < STAGES[kind]:
        names = tuple(name for name in names if name not in STORAGE)
      names = tuple(name for name in names if sizes[name] > 1)
      if length % math.prod(sizes[name] for name in names):
        if axis != 'V':
          _refuse_length(axis, length, names, sizes)
        names = ()
      for name in names:
        if name in taken:
          raise errors.InputError(
            f'{KEY}: {taken[name]} and {axis} are both sharded over {name!r}, '
            f'and a parameter is {own}: give one of them another axis'
          )
        taken[name] = axis
      spec.append(names if len(names) > 1 else (names or (None,))[0])
    while spec and spec[-1] is None:
      spec.pop()
    return PartitionSpec(*spec)


def _refuse_length(axis, length, names, sizes) -> NoReturn:
  options = ', '.join(f'mesh.{name}={sizes[name]}' for name in names)
  raise errors.InputError(
    f'{options}: {shapes.AXES[axis]} ({axis}) is {length} in a parameter and '
    'cannot be sharded equally: give a size that divides it, or drop its rule '
    f'from {KEY}'
  )


@functools.cache
def parse(texts: tuple[str, ...], zero: int) -> Rules:
  """Reads rules such as 'D=fsdp'.

  Raises:
    InputError: an unknown axis, a logical axis with two rules, or a mesh axis
      that can't shard the logical one.
  """
  pairs: dict[str, tuple[str, ...]] = {}
  for text in texts:
    axis, equals, names = text.partition('=')
    where = f'{KEY}: {text!r}'
    if not equals or axis not in shapes.AXES:
      raise errors.InputError(
        f'{where}: write LETTER=AXIS with a letter of {[*shapes.AXES]}'
      )
    if axis in BATCH:
      raise errors.InputError(
        f"{where}: {axis} isn't an axis of a parameter: leave it out, it is "
        f'always sharded over {"+".join(BATCH[axis])}'
      )
    if axis in pairs:
      raise errors.InputError(f'{where}: {axis} has a rule already: join them')
    pairs[axis] = tuple(names.split('+'))
    for name in pairs[axis]:
      _check_mesh_axis(where, axis, name)
  return Rules(tuple(pairs.items()), zero)


def _check_mesh_axis(where, axis, name):
  if name not in axes_lib.NAMES:
    raise errors.InputError(
      f"{where}: {name!r} isn't an axis of the mesh: choose one of "
      f'{axes_lib.NAMES}'
    )
  if name not in STORAGE and axis not in WORK[name]:
    able = ', '.join(WORK[name]) or 'no axis of a parameter'
    raise errors.InputError(
      f'{where}: {name} shards {able}: choose one of {STORAGE} for {axis}'
    )


def batch_spec(logical_axes: str) -> PartitionSpec:
  """Returns the sharding of an array of a batch, of logical axes as 'BxL'."""
  return PartitionSpec(*(BATCH.get(axis) for axis in logical_axes.split('x')))


REPLICATED = PartitionSpec()


def sharding(
  mesh: jax.sharding.Mesh, spec: PartitionSpec = REPLICATED
) -> jax.sharding.NamedSharding:
  """Returns the sharding over a mesh; without a `spec` it is replicated."""
  return jax.sharding.NamedSharding(mesh, spec)
