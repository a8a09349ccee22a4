"""The language model with each layer's parameters and state apart.

Training stacks the layers' parameters, RxDx..., and scans over R: one layer to
compile. A step that makes one token would first cut each layer's weights out
of the stack, which costs as much as multiplying by them. The numbers are the
same.
"""

import jax

from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import language_model


class LanguageModel(language_model.LanguageModel):
  """Takes parameters from `unstack`. The state is a tuple, one entry a layer.

  See the module's docstring; build it with `for_inference`.
  """

  def setup(self):
    super().setup()
    fields = (self.config, self.cell_config, self.plan, self.policy)
    self.layer = [blocks.Block(*fields) for _ in range(self.config.layers)]

  def init_state(self, B):
    """The state before a document, for B rows."""
    cell = blocks.make_cell(self, parent=None)
    return tuple(cell.init_state(B) for _ in range(self.config.layers))

  def hidden(self, state, tokens_BxL, starts_BxL=None):
    """Returns (state, the last block's outputs, BxLxD)."""
    x, states = self.embed(tokens_BxL), []
    for layer, old in zip(self.layer, state, strict=True):
      x, new = layer(x, old, starts_BxL)
      states.append(new)
    return tuple(states), x


def for_inference(model: language_model.LanguageModel) -> LanguageModel:
  """Returns `model` for parameters from `unstack`, forward alone."""
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
  layers = [stack['first']] if 'first' in stack else []
  if 'blocks' in stack:
    stacked = stack['blocks']
    for n in range(jax.tree.leaves(stacked)[0].shape[0]):
      layers.append(jax.tree.map(lambda x, n=n: x[n], stacked))
  return params | {f'layer_{n}': layer for n, layer in enumerate(layers)}
