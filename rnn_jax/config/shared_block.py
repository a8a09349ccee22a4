"""The section `model.shared_block` of the config, and its rules."""

import dataclasses
from typing import Any
from typing import Self

from rnn_jax import errors
from rnn_jax.config.values import option

COUNT = 'model.shared_block.count'
EXCLUDED = (
  'model.bidirectional',
  'model.shared_layers',
  'mesh.tensor!=1',
  'mesh.sequence!=1',
  "recurrence.impl!=('auto', 'scan')",
)


@dataclasses.dataclass(frozen=True)
class SharedBlock:
  """Attention and an MLP that some layers share: models/shared_block.py."""

  count: int = option(  # different blocks, which the layers take in turn
    0,
    minimum=0,
    needs=('model.cells', "model.block='residual'"),
    excludes=EXCLUDED,
  )
  layers: tuple[int, ...] = option((), needs=COUNT)  # from 0, ascending
  heads: int = option(4, minimum=1, needs=COUNT)  # 2 width / heads wide
  kv_heads: int = option(0, minimum=0, needs=COUNT)  # 0: heads
  # Earlier steps that a step sees; 0: data.length.
  window: int = option(0, minimum=0, needs=COUNT)
  rotary: float = option(10_000.0, minimum=0, needs=COUNT)  # as cell.rotary
  rotary_scaling: tuple[float, ...] = option(
    (), needs=(COUNT, 'model.shared_block.rotary')
  )
  mlp: str = option('geglu', choices='models.mlp:GATED', needs=COUNT)
  mlp_width: int = option(128, minimum=1, needs=COUNT)
  # Of the changes that each layer makes to the MLP's first matrices.
  adapter_rank: int = option(8, minimum=1, needs=COUNT)
  # And to those of q, k and v.
  attention_adapters: bool = option(False, needs=COUNT)

  def check(self, config: Any) -> None:
    """Checks the section against the rest of a Config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if not self.count:
      return
    model, layers = config.model, self.layers
    if model.layers != len(model.cells):
      errors.refuse(
        COUNT, self.count, 'give model.cells the cell of each of model.layers'
      )
    if not layers or [*layers] != sorted({*layers} & {*range(model.layers)}):
      self._refuse(
        'layers', f'give ascending numbers from 0 to {model.layers - 1}'
      )
    if self.count > len(layers):
      self._refuse(
        'count', f'{len(layers)} layers take them in turn: give at most that'
      )
    if 2 * model.width % self.heads:
      self._refuse('heads', f'it must divide 2 * model.width={2 * model.width}')
    if self.heads % (self.kv_heads or self.heads):
      self._refuse(
        'kv_heads', f'it must divide model.shared_block.heads={self.heads}'
      )
    if self.rotary and self.rotary <= 1:
      self._refuse('rotary', 'give a number above 1, or 0 for no positions')
    if self.rotary and self.head_width(model.width) % 2:
      self._refuse(
        'heads', 'rotary positions need an even width of heads: give another'
      )
    # A carried state reaches back beyond its row.
    if self.window > config.data.length and not config.data.carry_state:
      self._refuse(
        'window', f'above data.length={config.data.length}: give 0 for all'
      )

  def _refuse(self, key, remedy):
    errors.refuse(f'model.shared_block.{key}', getattr(self, key), remedy)

  def head_width(self, width: int) -> int:
    """Returns the channels of a head, in a model of this width."""
    return 2 * width // self.heads

  def number(self, layer: int) -> int:
    """Returns which of the blocks a layer of `layers` uses."""
    return self.layers.index(layer) % self.count

  def of_layer(self, layer: int) -> Self:
    """Returns the options of one layer; the default where it uses none."""
    if layer not in self.layers:
      return type(self)()
    return dataclasses.replace(self, layers=(layer,))
