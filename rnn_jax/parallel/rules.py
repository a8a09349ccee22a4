"""Where arrays lie on a mesh: logical axes to those of the mesh.

A rule 'D=fsdp' says that every axis of a parameter that is a model width is cut
over the mesh's axis `fsdp`; 'D=data+fsdp' over both. Of what is kept, `zero`
says how much is cut over the axes of rows, data and fsdp (Rajbhandari et al.,
"ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020):

    0   nothing: every device keeps all of the state
    1   the optimizer's state
    2   and gradients
    3   and parameters, which are gathered where they are used (FSDP)

Over `tensor` and `pipe` all of these are cut whatever `zero` is, because the
work on them is. Rows and steps are cut by no rule: B over data and fsdp, L over
sequence.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping

import jax

from rnn_jax import errors
from rnn_jax import shapes
from rnn_jax.parallel import axes as axes_lib

ROWS = ('data', 'fsdp')  # the axes that cut rows, and only storage
STAGES = {'optimizer': 1, 'gradients': 2, 'parameters': 3}
# Which logical axes a mesh axis can cut beside storage; the code must follow.
WORK = {'tensor': 'HFV', 'pipe': 'R', 'sequence': ''}
BATCH = {'B': ROWS, 'L': ('sequence',)}
KEY = 'mesh.rules'

PartitionSpec = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True)
class Rules:
  """Which axes cut which letter of a parameter, and of what else is kept.

  Attributes:
    pairs: (letter, axes) of each rule.
    zero: see the module's docstring.
  """

  pairs: tuple[tuple[str, tuple[str, ...]], ...] = ()
  zero: int = 3

  def axes(self, letter: str) -> tuple[str, ...]:
    """Returns the axes that cut a letter."""
    return dict(self.pairs).get(letter, ())

  def storage(self, letter: str) -> tuple[str, ...]:
    """Returns those that cut where it is kept, not the work on it."""
    return tuple(axis for axis in self.axes(letter) if axis in ROWS)

  def shards(self, letter: str) -> int:
    """Returns among how many devices the work on a letter is shared, seen
    from inside a program of the mesh; 1 outside."""
    work = set(self.axes(letter)) - set(ROWS)
    return math.prod(axes_lib.size(axis) for axis in work)

  def state_spec(self, logical_axes: str) -> PartitionSpec:
    """Returns how a recurrent state is cut, as the work on it is."""
    return PartitionSpec(
      *(
        BATCH.get(letter)
        or tuple(axis for axis in self.axes(letter) if axis not in ROWS)
        or None
        for letter in logical_axes.split('x')
      )
    )

  def is_used(self) -> bool:
    """Returns whether devices share parameters, seen from inside a program of
    the mesh; False outside."""
    return any(axes_lib.size(axis) > 1 for _, cut in self.pairs for axis in cut)

  def gathers(self) -> bool:
    """Returns whether parameters are gathered where they are used, likewise."""
    cut = {axis for letter, _ in self.pairs for axis in self.storage(letter)}
    kept = self.zero == STAGES['parameters']
    return kept and any(axes_lib.size(axis) > 1 for axis in cut)

  def spec(
    self, logical_axes: str, shape: tuple, sizes: Mapping[str, int], kept: str
  ) -> PartitionSpec:
    """Returns how a parameter, or what is kept of one, is cut.

    Args:
      logical_axes: of the parameter, as 'DxF', see fsdp.py; '_' is one that no
        rule cuts.
      shape: its whole shape.
      sizes: of the mesh's axes.
      kept: 'parameters', 'gradients' or 'optimizer'.

    Raises:
      InputError: two are cut over one axis of the mesh, or one has a size that
        the mesh's doesn't divide. (The vocabulary is then kept whole.)
    """
    cut, taken, own = [], {}, logical_axes.partition('+')[0]
    for letter, length in zip(own.split('x'), shape, strict=True):
      wanted = self.axes(letter)
      if self.zero < STAGES[kept]:
        wanted = tuple(axis for axis in wanted if axis not in ROWS)
      wanted = tuple(axis for axis in wanted if sizes[axis] > 1)
      if length % math.prod(sizes[axis] for axis in wanted):
        if letter != 'V':
          _refuse_length(letter, length, wanted, sizes)
        wanted = ()
      for axis in wanted:
        if axis in taken:
          raise errors.InputError(
            f'{KEY}: {taken[axis]} and {letter} are both cut over {axis!r}, '
            f'and a parameter is {own}: give one of them another axis'
          )
        taken[axis] = letter
      cut.append(wanted if len(wanted) > 1 else (wanted or (None,))[0])
    while cut and cut[-1] is None:
      cut.pop()
    return PartitionSpec(*cut)


def _refuse_length(letter, length, wanted, sizes):
  told = ', '.join(f'mesh.{axis}={sizes[axis]}' for axis in wanted)
  raise errors.InputError(
    f'{told}: {shapes.AXES[letter]} ({letter}) is {length} in a parameter and '
    'cannot be shared equally: give a size that divides it, or drop its rule '
    f'from {KEY}'
  )


@functools.cache
def parse(texts: tuple[str, ...], zero: int) -> Rules:
  """Reads rules such as 'D=fsdp'.

  Raises:
    InputError: an unknown letter or axis, a letter with two rules, or an axis
      that can't cut the letter.
  """
  pairs = {}
  for text in texts:
    letter, equals, names = text.partition('=')
    told = f'{KEY}: {text!r}'
    if not equals or letter not in shapes.AXES:
      raise errors.InputError(
        f'{told}: write LETTER=AXIS with a letter of {[*shapes.AXES]}'
      )
    if letter in BATCH:
      raise errors.InputError(
        f'{told}: {letter} is no axis of a parameter: leave it out, it is cut '
        f'over {"+".join(BATCH[letter])} anyway'
      )
    if letter in pairs:
      raise errors.InputError(f'{told}: {letter} has a rule already: join them')
    pairs[letter] = tuple(names.split('+'))
    for axis in pairs[letter]:
      _check_axis(told, letter, axis)
  return Rules(tuple(pairs.items()), zero)


def _check_axis(told, letter, axis):
  if axis not in axes_lib.NAMES:
    raise errors.InputError(
      f'{told}: {axis!r} is no axis of the mesh: choose of {axes_lib.NAMES}'
    )
  if axis not in ROWS and letter not in WORK[axis]:
    able = ', '.join(WORK[axis]) or 'no letter of a parameter'
    raise errors.InputError(
      f'{told}: {axis} cuts {able}: choose of {ROWS} for {letter}'
    )


def batch_spec(logical_axes: str) -> PartitionSpec:
  """Returns how an array of a batch is cut, from its logical axes, as 'BxL'."""
  return PartitionSpec(
    *(BATCH.get(letter) for letter in logical_axes.split('x'))
  )


WHOLE = PartitionSpec()


def sharding(mesh: jax.sharding.Mesh, spec: PartitionSpec = WHOLE):
  """Returns the sharding over a mesh; without a `spec` all of it everywhere."""
  return jax.sharding.NamedSharding(mesh, spec)
