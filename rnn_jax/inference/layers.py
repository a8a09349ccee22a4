"""The language model with separate parameters and state for each layer.

Training stacks the layers' parameters, RxDx..., and scans over R: one layer to
compile. In decoding, slicing each layer's weights out of the stack would cost
as much as multiplying by them. The numbers are the same.
"""

from typing import Any

import jax

from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import language_model


class LanguageModel(language_model.LanguageModel):
  """Takes parameters from `unstack`; its state is a tuple of the layers'.

  Build it with `for_inference`.
  """

  def setup(self) -> None:
    super().setup()
    fields = (self.config, self.cell_config, self.plan, self.policy)
    count = 1 if self.config.shared_layers else self.config.layers
    self.layer = [blocks.Block(*fields) for _ in range(count)]

  def init_state(self, B: int) -> Any:
    """Returns the state before a document, for B rows."""
    cell = blocks.make_cell(self, parent=None)
    states = tuple(cell.init_state(B) for _ in range(self.config.layers))
    return self._init_positions(B), states

  def hidden(
    self,
    state: Any,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[Any, jax.Array]:
    """Returns (state, the last block's outputs, BxLxD)."""
    position, old_states = state
    position, x = self.read(position, tokens_BxL, starts_BxL)
    states = []
    for n, old in enumerate(old_states):
      x, new = self.layer[n % len(self.layer)](x, old, starts_BxL)
      states.append(new)
    return (position, tuple(states)), x


def for_inference(model: language_model.LanguageModel) -> LanguageModel:
  """Returns `model` for parameters from `unstack`, forward only."""
  return LanguageModel(
    model.config,
    model.cell_config,
    model.vocabulary,
    base.Plan('auto', model.plan.chunk_length),
    model.policy,
  )


def unstack(params: dict) -> dict:
  """Returns a `language_model.LanguageModel`'s parameters layer by layer."""
  params = dict(params)
  stack = params.pop('stack')
  layers = [stack[name] for name in ('first', 'shared') if name in stack]
  if 'blocks' in stack:
    stacked = stack['blocks']
    for n in range(jax.tree.leaves(stacked)[0].shape[0]):
      layers.append(jax.tree.map(lambda x, n=n: x[n], stacked))
  return params | {f'layer_{n}': layer for n, layer in enumerate(layers)}
