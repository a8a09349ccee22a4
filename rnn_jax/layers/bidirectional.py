"""A layer in both directions: each step sees all of its row.

y_t = [forward(x)_t ; backward(x)_t]      or their sum
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.layers import base

PyTree = Any
MERGES = ('concat', 'sum')


class Bidirectional(nn.Module):
  """Two layers like `layer`, one of which reads from the last step.

  Parameters are those of `forward` and `backward`. A state is a pair of states.

  Attributes:
    layer: which layer, with its options.
    merge: 'concat', y is BxLx2F, or 'sum', BxLxF.
  """

  layer: base.Layer
  merge: str = 'concat'

  def setup(self) -> None:
    if self.merge not in MERGES:
      errors.refuse('merge', self.merge, f'choose one of {MERGES}')
    if self.layer.reverse:
      errors.refuse('layer.reverse', True, 'give a layer that reads forward')
    self.forward = self.layer.clone(parent=None, name=None)
    self.backward = self.layer.clone(parent=None, name=None, reverse=True)

  @nn.nowrap
  def init_state(self, B: int, inputs: int = 0) -> tuple[PyTree, PyTree]:
    """Returns the states of both layers, as `Layer.init_state`."""
    return tuple(self.layer.init_state(B, inputs) for _ in range(2))

  def __call__(
    self,
    x: jax.Array,
    *,
    lengths: jax.Array | None = None,
    starts: jax.Array | None = None,
  ) -> jax.Array:
    """Runs both layers, with arguments as of `Layer.__call__`.

    Returns:
      y_BxLx2F, or y_BxLxF for a sum; 0 at the padding.

    Raises:
      InputError: as a layer, or a `merge` that doesn't exist.
      NotImplementedError: `impl` can't run here.
    """
    return self._merge(
      layer(x, lengths=lengths, starts=starts)
      for layer in (self.forward, self.backward)
    )

  def scan(
    self,
    state: tuple[PyTree, PyTree] | None,
    x: jax.Array,
    *,
    lengths: jax.Array | None = None,
    starts: jax.Array | None = None,
  ) -> tuple[tuple[PyTree, PyTree], jax.Array]:
    """Runs both layers from states, with arguments as of `Layer.scan`.

    Returns:
      ((forward's state at the end, backward's at the first step), y).

    Raises:
      InputError: as a layer, or a `merge` that doesn't exist.
      NotImplementedError: `impl` can't run here.
    """
    states, y = zip(
      *(
        layer.scan(old, x, lengths=lengths, starts=starts)
        for layer, old in zip(
          (self.forward, self.backward), state or (None, None), strict=True
        )
      ),
      strict=True,
    )
    return states, self._merge(y)

  @nn.nowrap
  def _merge(self, y):
    forward, backward = y
    if self.merge == 'sum':
      return forward + backward
    return jnp.concatenate([forward, backward], -1)
