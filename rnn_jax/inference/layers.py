"""The language model with separate parameters and state for each layer.

Training stacks the layers' parameters, RxDx..., and scans over R: one layer to
compile. In decoding, slicing each layer's weights out of the stack would cost
as much as multiplying by them. The numbers are the same, but for states that
are kept in bfloat16.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.models import period
from rnn_jax.models import shared_block
from rnn_jax.ops import precision


class LanguageModel(language_model.LanguageModel):
  """Takes parameters from `unstack`; its state is a tuple of the layers'.

  Build it with `for_inference`.
  """

  def setup(self) -> None:
    super().setup()
    own = period.layers(self)
    if self.config.shared_layers:
      own = own[: len(self.config.pattern)]
    self.layer = [period.make_block(one) for one in own]
    self.shared = shared_block.make(self)

  def init_state(self, B: int) -> Any:
    """Returns the state before a document, for B rows."""
    one = period.init_state(self, B)
    states = one if self.config.cells else (one,)
    return self._init_positions(B), self.config.periods * states

  def hidden(
    self,
    state: Any,
    tokens_BxL: jax.Array,
    starts_BxL: jax.Array | None = None,
    added_BxLxD: jax.Array | None = None,
  ) -> tuple[Any, jax.Array]:
    """Returns (state, the last block's outputs, BxLxD)."""
    position, old_states = state
    position, x = self.read(position, tokens_BxL, starts_BxL, added_BxLxD)
    stream, states = period.begin(self, x), []
    for n, old in enumerate(old_states):
      layer = self.layer[n % len(self.layer)]
      shared = shared_block.used(self.config, n, self.shared)
      stream, new = layer(stream, old, starts_BxL, *shared)
      states.append(new)
    return (position, tuple(states)), blocks.x_of(stream)


def for_inference(model: language_model.LanguageModel) -> LanguageModel:
  """Returns `model` for parameters from `unstack`, forward only."""
  return LanguageModel(
    model.config,
    model.cell_config,
    model.vocabulary,
    base.Plan('auto', model.plan.chunk_length),
    model.policy,
  )


def with_states(
  model: language_model.LanguageModel, states: str
) -> LanguageModel:
  """Returns `model` for inference, the matrices of its recurrences in a format.

  They are computed in float32, and rounded after each step, or after each chunk
  of a text that is read.

  Args:
    model: the model.
    states: one of precision.STATES.

  Raises:
    InputError: `states` is another word, or the model has no such matrix.
  """
  check_states(states)
  policy = dataclasses.replace(model.policy, states=states)
  made = for_inference(model.clone(policy=policy))
  if states == 'float32':
    return made
  like = jax.eval_shape(lambda: made.apply({}, 1, method='init_state'))
  if not any(x.dtype == jnp.bfloat16 for x in jax.tree.leaves(like)):
    cells = ', '.join(made.config.pattern)
    errors.refuse(
      'states', states, f"no state of {cells} is a matrix: give 'float32'"
    )
  return made


def check_states(states: str) -> None:
  """Checks the name of a format of states.

  Raises:
    InputError: it isn't in precision.STATES.
  """
  if states not in precision.STATES:
    errors.refuse('states', states, f'choose one of {precision.STATES}')


def unstack(params: dict) -> dict:
  """Returns a `language_model.LanguageModel`'s parameters layer by layer."""
  params = dict(params)
  stack = params.pop('stack')
  units = [stack[name] for name in ('first', 'shared') if name in stack]
  if 'blocks' in stack:
    stacked = stack['blocks']
    for n in range(jax.tree.leaves(stacked)[0].shape[0]):
      units.append(jax.tree.map(lambda x, n=n: x[n], stacked))
  layers = [layer for unit in units for layer in period.split(unit)]
  own = {f'layer_{n}': layer for n, layer in enumerate(layers)}
  for unit in units:
    own |= period.split_shared(unit)
  return params | own


def place(params: dict, device: jax.Device) -> dict:
  """Returns `unstack`ed parameters on a device.

  On a CPU they share the memory of `params`, which nobody may change.
  """
  if device.platform == 'cpu':
    params = jax.device_get(params)
  if all(isinstance(x, np.ndarray) for x in jax.tree.leaves(params)):
    return jax.device_put(unstack(params), device)
  return jax.jit(unstack)(jax.device_put(params, device))
