"""The unit that layers repeat: a block, or a period of several.

With `model.cells` a period has a block for each entry of the pattern, so that
for cells c_1, ..., c_n

    x = block_{c_n}(... block_{c_1}(x))        R = periods * n layers

Its parameters are entry_0, ..., entry_{n-1}, its state a tuple of theirs. With
one cell the unit is the block itself. Its layers may differ in what follows the
cell, as model.mlps says. A stack scans over units, and so is compiled for one
of them. Where the first layers have no experts, the first unit differs from the
others, and runs before the scan.

Blocks that layers of a period share (shared_block.py) are its shared_0, ...
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import shared_block
from rnn_jax.ops import devices
from rnn_jax.ops import precision

PyTree = Any
ENTRY, SHARED = 'entry', 'shared'


class Fields(NamedTuple):
  """What a block, a period and a stack are made from."""

  config: config_lib.Model
  cell_config: Any  # base.Config, or config.pattern.Options of `model.cells`
  plan: base.Plan
  policy: precision.Policy

  @property
  def entries(self) -> tuple['Fields', ...]:
    """Those of the blocks of a unit, the first one if it differs."""
    config = self.config
    if config.shared_block.count:
      return tuple(
        one._replace(config=one.config.of_layer(n))
        for n, one in enumerate(self._of_pattern)
      )
    return self._of_pattern

  @property
  def _of_pattern(self):
    config = self.config
    own: tuple[Fields, ...] = (self,)
    if config.cells:
      own = tuple(
        self._replace(
          config=config.of_cell(name), cell_config=self.cell_config.of(name)
        )
        for name in config.cells
      )
    if config.mlps:
      return tuple(
        one._replace(config=one.config.of_mlp(kind))
        for one, kind in zip(own, config.mlps, strict=True)
      )
    if not (dense := config.experts.dense_layers):
      return own
    return tuple(
      one._replace(config=one.config.dense if n < dense else one.config.routed)
      for n, one in enumerate(own)
    )


def fields(module: Any) -> Fields:
  """Returns the fields of a block, a period, a stack or a model."""
  return Fields(module.config, module.cell_config, module.plan, module.policy)


def first(module: Any) -> Fields:
  """Returns the fields of a stack's first unit."""
  own = fields(module)
  return own if own.config.cells else own.entries[0]


def others(module: Any) -> Fields:
  """Returns the fields of a stack's other units; all may be alike."""
  own = fields(module)
  return own._replace(config=own.config.routed)


def layers(module: Any) -> tuple[Fields, ...]:
  """Returns the fields of each layer's block."""
  periods = module.config.periods
  return fields(module).entries + (periods - 1) * others(module).entries


class Period(blocks.Module):
  """A block for each entry of a pattern."""

  def setup(self) -> None:
    self.entry = [make_block(own) for own in fields(self).entries]
    self.shared = shared_block.make(self)

  def __call__(
    self,
    stream: jax.Array | blocks.Stream,
    state: PyTree,
    starts_BxL: jax.Array | None,
  ) -> tuple[jax.Array | blocks.Stream, PyTree]:
    """Returns (stream, state), of the blocks' states before and after."""
    new = []
    for n, (block, old) in enumerate(zip(self.entry, state, strict=True)):
      shared = shared_block.used(self.config, n, self.shared)
      stream, own = block(stream, old, starts_BxL, *shared)
      new.append(own)
    return stream, tuple(new)


def make_block(own: Fields, **overrides: Any) -> blocks.Block:
  """Returns a layer's block; `overrides` are arguments of the module."""
  uses = own.config.shared_block.count > 0
  return (shared_block.Block if uses else blocks.Block)(*own, **overrides)


def unit(config: config_lib.Model) -> type[nn.Module]:
  """Returns the class of the unit that a stack repeats."""
  return Period if config.cells else blocks.Block


def of_blocks(module: Any, function: Callable[[nn.Module], PyTree]) -> PyTree:
  """Returns `function` of a unit's block, a tuple of all for a period.

  Args:
    module: a block, a period, a stack or a model.
    function: of a block, without parameters.
  """
  each = tuple(map(function, _blocks(module)))
  return each if module.config.cells else each[0]


def _blocks(module):
  return [make_block(own, parent=None) for own in fields(module).entries]


def init_state(module: Any, B: int) -> PyTree:
  """Returns the zero state of a unit for B rows; `module` as of `of_blocks`."""
  return of_blocks(module, lambda block: shared_block.init_state(block, B))


def begin(module: Any, x_BxLxD: jax.Array) -> jax.Array | blocks.Stream:
  """Returns the stream of the first layer: x, and what is beside it.

  Args:
    module: a block, a period, a stack or a model.
    x_BxLxD: the inputs of the first layer.
  """
  beside = {}
  for block in _blocks(module):
    cell = blocks.make_cell(block, parent=None)
    if (own := cell.beside(*x_BxLxD.shape[:2])) is not None:
      both = block.config.bidirectional
      beside[block.config.cell] = (own, own) if both else own
  if module.config.shared_block.count:
    beside[shared_block.INPUTS] = x_BxLxD
  return blocks.Stream(x_BxLxD, beside) if beside else x_BxLxD


def logical_axes(config: config_lib.Model) -> dict[str, str]:
  """Returns the logical axes of a unit's parameters by path."""
  if not config.cells:
    return blocks.logical_axes(config.cell)
  own = {
    f'{ENTRY}_{n}/{path}': axes
    for n, name in enumerate(config.cells)
    for path, axes in (
      blocks.logical_axes(name) | shared_block.USE_AXES
    ).items()
  }
  return own | {
    f'{SHARED}_{n}/{path}': axes
    for n in range(config.shared_block.count)
    for path, axes in shared_block.SHARED_AXES.items()
  }


def gathered(module: Any, params: PyTree) -> PyTree:
  """Returns a unit's parameters as it uses them, from this device's shards."""
  return devices.current().gather(params, logical_axes(module.config))


def split(params: PyTree) -> list[PyTree]:
  """Returns the parameters of each block of a unit, in order."""
  count = sum(name.startswith(f'{ENTRY}_') for name in params)
  return [params[f'{ENTRY}_{n}'] for n in range(count)] or [params]


def split_shared(params: PyTree) -> dict[str, PyTree]:
  """Returns the parameters of a unit's shared blocks by name."""
  return {k: v for k, v in params.items() if k.startswith(f'{SHARED}_')}
