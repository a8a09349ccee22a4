"""A model of labelled series: readings in, outputs at each step, or pooled.

    u_t = W_in [x_t, observed_t] + b             missing readings are 0
    o_t = W_head pool(stack(u))_t + b            pool: of the steps so far

x_t are the last readings of each channel (data/series/labelled_examples.py).
The last step of a series has the outputs of the whole series; without a pool
each step has its own. The stack is that of a language model, and so is its
state. With model.bidirectional a step has read the whole series, and pool
'last' is the last step that each direction reads, as in models/classifier.py.

Shapes: readings BxLxW, W of all channels; outputs BxLxO, float32.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.models import stack
from rnn_jax.ops import pooling
from rnn_jax.ops import precision
from rnn_jax.ops import reversal

PyTree = Any
EACH = 'each'  # step has its own outputs
LOGICAL_AXES = {
  'input/kernel': '_xD',
  'input/bias': 'D',
  'norm/*': 'D',
  'head/kernel': '_x_',
  'head/bias': '_',
}


class Labeller(nn.Module):
  """See the module's docstring; build it with `from_config`."""

  config: config_lib.Model
  cell_config: Any
  inputs: int  # W
  outputs: int  # O
  pooling: str  # one of pooling.KINDS, or EACH
  plan: base.Plan = base.Plan()
  policy: precision.Policy = precision.POLICIES['float32']

  def setup(self) -> None:
    config, policy = self.config, self.policy
    self.input = nn.Dense(
      config.width, dtype=policy.activations, dot_general=policy.dot_general
    )
    self.stack = stack.Stack(config, self.cell_config, self.plan, policy)
    if self._normalizes:
      self.norm = blocks.norm(config, policy)
    self.drop = blocks.dropout(config)
    self.drop_pool = nn.Dropout(config.dropout)
    self.head = nn.Dense(self.outputs)

  @property
  def _normalizes(self):
    """Whether there is a norm: a pool reads the outputs without one."""
    block = self.config.block
    return block == 'normed' or block == 'residual' and self.pooling == EACH

  @nn.nowrap
  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path."""
    axes = stack.logical_axes(self.config)
    return LOGICAL_AXES | {f'stack/{path}': x for path, x in axes.items()}

  def init_state(self, B: int) -> PyTree:
    """Returns the states of the stack and the pool before B series."""
    pool = pooling.init_state(B, self.config.width)
    return self.stack.init_state(B), pool

  def state_axes(self) -> PyTree:
    """Returns the logical axes of the state, a tree like it."""
    axes: Any = 'Bx_', 'BxD', 'BxD'
    return self.stack.state_axes(), pooling.State(*axes)

  def pooled(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, the head's inputs, BxLxD or BxLx3D)."""
    inner, pool = state
    inner, x = self.stack(inner, self.read(readings_BxLxW), starts_BxL)
    if self.pooling == EACH:
      return (inner, pool), self.norm(x) if self._normalizes else x
    last = None
    if self.config.bidirectional:
      forward, backward = jnp.split(x, 2, -1)
      backward = reversal.from_first(backward, starts_BxL)
      last = jnp.concatenate([forward, backward], -1)
    pool, y = pooling.pool(pool, x, self.pooling, starts_BxL, last)
    return (inner, pool), y

  def read(self, readings_BxLxW: jax.Array) -> jax.Array:
    """Returns the first block's inputs, BxLxD."""
    observed = ~jnp.isnan(readings_BxLxW)
    given = jnp.where(observed, readings_BxLxW, 0), observed
    u = jnp.concatenate([x.astype(self.policy.activations) for x in given], -1)
    x = self.input(u)
    if not blocks.drops_inputs(self.config):
      x = self.drop(x, deterministic=self._is_fixed)
    return self.norm(x) if self.config.block == 'normed' else x

  @property
  def _is_fixed(self):
    return not self.has_rng('dropout')

  def __call__(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, outputs_BxLxO)."""
    state, x = self.pooled(state, readings_BxLxW, starts_BxL)
    x = self.drop_pool(x.astype(jnp.float32), deterministic=self._is_fixed)
    return state, self.head(x)

  def each(
    self,
    state: PyTree,
    readings_BxLxW: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[PyTree, list[jax.Array]]:
    """Returns (state, the outputs that training has losses of: one)."""
    state, outputs = self(state, readings_BxLxW, starts_BxL)
    return state, [outputs]


def mean(outputs: Sequence[jax.Array]) -> jax.Array:
  """Returns the mean of outputs; of one, itself."""
  first, *others = outputs
  return sum(others, first) / len(outputs) if others else first


def from_config(
  config: config_lib.Config, outputs: int, pooling: str = EACH
) -> Labeller:
  """Returns the model of a config, with so many outputs.

  Raises:
    InputError: this device can't multiply in the config's number format.
  """
  return Labeller(
    config.model,
    config.cell,
    config.data.widths[0],
    outputs,
    pooling,
    language_model.plan(config),
    language_model.policy(config),
  )
