"""Multi-head softmax attention as a cell: its state is a window of the past.

    q, k, v = W x        o = Wo [y_1; ...; y_H],  y_h of `ops.attention`

A step sees itself and the `window` steps before it, of its own document. To
attend to all, give a window as long as the rows. Unlike that of a recurrent
cell, the state holds each step by itself: it grows with the window, and
forgets all at once what leaves it.

Shapes: x BxLxD, q, k, v, y BxLxHxK, the state BxWxHxK twice.
Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.ops import attention

IMPLS = ('auto', 'chunked', 'scan')  # 'chunked': blocks of queries


@dataclasses.dataclass(frozen=True)
class Config:
  """Options of the cell, section `cell` of the config."""

  heads: int = 4
  head_width: int = 32
  window: int = 256  # steps before its own that a step sees
  rotary: float = 10_000.0  # base of rotary positions; 0: no positions
  dropout: float = 0.0  # on y

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for key in ('heads', 'head_width', 'window'):
      if getattr(self, key) < 1:
        self._refuse(key, 'give 1 or more')
    if self.window > 2**22:
      self._refuse('window', f'give {2**22} at most')
    if self.rotary and self.rotary <= 1:
      self._refuse('rotary', 'give a number above 1, or 0 for no positions')
    if self.rotary and self.head_width % 2:
      self._refuse('head_width', 'rotary positions need an even one')
    if not 0 <= self.dropout < 1:
      self._refuse('dropout', 'give a number in [0, 1)')
    impl = config.recurrence.impl
    if impl not in IMPLS:
      raise errors.InputError(
        f"recurrence.impl={impl!r}: model.cell='attention' has {IMPLS}"
      )

  def _refuse(self, key, remedy):
    raise errors.InputError(f'cell.{key}={getattr(self, key)!r}: {remedy}')


class Projected(NamedTuple):
  """What a step reads of its input."""

  q_BxLxHxK: Any
  k_BxLxHxK: Any
  v_BxLxHxK: Any


class Cell(base.Cell):
  """The cell; see the module's docstring."""

  def setup(self):
    config = self.config
    self.projection = self._dense(3 * config.heads * config.head_width)
    self.output = self._dense(self.width)
    self.drop = nn.Dropout(config.dropout)

  def _dense(self, width):
    return nn.Dense(
      width,
      use_bias=False,
      dtype=self.policy.activations,
      dot_general=self.policy.dot_general,
      kernel_init=nn.initializers.xavier_uniform(),
    )

  def init_state(self, B):
    config = self.config
    return attention.init_cache(
      B, config.window, config.heads, config.head_width, config.head_width
    )

  def project(self, x_BxLxD):
    parts = jnp.split(self.projection(x_BxLxD), 3, -1)
    heads = self.config.heads
    return Projected(*(x.reshape(*x.shape[:2], heads, -1) for x in parts))

  def step(self, state, u):
    state, y = self._attend(state, jax.tree.map(lambda x: x[:, None], u), None)
    return state, y[:, 0]

  def recur(self, state, u, starts_BxL):
    if self.plan.impl == 'scan':
      return base.scan_steps(self, state, u, starts_BxL)
    return self._attend(state, u, starts_BxL)

  def _attend(self, state, u, starts_BxL):
    """Any number of steps; `step` and `recur` are this."""
    state, y = attention.attend(
      state,
      *u,
      starts_BxL=starts_BxL,
      base=self.config.rotary,
      block=self.plan.remat_every or self.plan.chunk_length,
    )
    return state, y.reshape(*y.shape[:2], -1)

  def emit(self, y):
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))
