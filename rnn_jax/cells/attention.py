"""Multi-head softmax attention as a cell: its state is a window of the past.

    q, k, v = W x        o = Wo [y_1; ...; y_H],  y_h of `ops.attention`

A step sees itself and the `window` steps before it, of its own document; with
a `top_k` those alone that have the highest scores. Unlike that of a recurrent
cell, the state holds each step by itself: it grows with the window, and
forgets all at once what leaves it. A window of 0 is a row's length, all of a
row; a text that is written beyond it sees the last so many steps. With
sees='row' a step sees all of its row, as of a picture, and there is no state.

Shapes: x BxLxD, q, k, v, y BxLxHxK, the state BxWxHxK twice. With H K = D and
biases there are 4 D^2 + 4 D parameters.
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
from rnn_jax.ops import attention_cudnn
from rnn_jax.ops import attention_ring
from rnn_jax.ops import precision
from rnn_jax.ops import rotary
from rnn_jax.ops import row_attention
from rnn_jax.parallel import sequence

IMPLS = ('auto', 'scan', 'exact', 'blocked', 'cudnn')
OF_ROWS = {
  'auto': 'auto',
  'scan': 'auto',  # there are no steps to scan
  'exact': 'pairs',
  'blocked': 'blocked',
}  # what each is of `ops.row_attention`
LETTERS = {
  'projection/kernel': 'DxH',
  'projection/bias': 'H',
  'output/kernel': 'HxD',
  'output/bias': 'D+H',
}


@dataclasses.dataclass(frozen=True)
class Config:
  """Options of the cell, section `cell` of the config."""

  heads: int = 4
  head_width: int = 32
  window: int = 0  # steps before its own that a step sees; 0: data.length
  top_k: int = 0  # keys of the highest scores that count; 0: all
  sees: str = 'past'  # or 'row': all of it, what comes later included
  rotary: float = 10_000.0  # base of rotary positions; 0: no positions
  biases: bool = False  # on q, k, v and the output
  dropout: float = 0.0  # on y

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for key in ('heads', 'head_width'):
      if getattr(self, key) < 1:
        self._refuse(key, 'give 1 or more')
    for key in ('window', 'top_k'):
      if getattr(self, key) < 0:
        self._refuse(key, 'give 0 or more')
    if self.rotary and self.rotary <= 1:
      self._refuse('rotary', 'give a number above 1, or 0 for no positions')
    if self.rotary and self.head_width % 2:
      self._refuse('head_width', 'rotary positions need an even one')
    if not 0 <= self.dropout < 1:
      self._refuse('dropout', 'give a number in [0, 1)')
    base.check_sight(self.sees, config)
    if self.sees == 'row':
      self._check_row(config)
      return
    data = config.data
    # A state that is carried on reaches back beyond its row.
    if self.window > data.length and not data.carry_state:
      self._refuse(
        'window',
        f'it is above data.length={data.length}: give 0 for all of a row',
      )
    base.check_impl(config, IMPLS)
    base.check_steps(config)
    if config.recurrence.impl == 'cudnn':
      self._check_cudnn(config.train.precision)

  def _check_row(self, config):
    # `settle` gives a window that a run's folder is read with again.
    if self.window not in (0, config.data.length):
      self._refuse('window', "sees='row' is all of it: give 0")
    if self.top_k:
      self._refuse('top_k', "sees='row' is all of it: give 0")
    base.check_impl(config, tuple(OF_ROWS))

  def _check_cudnn(self, policy):
    kernel = "recurrence.impl='cudnn'"
    stored = jnp.dtype(precision.POLICIES[policy].activations).name
    if stored not in attention_cudnn.FORMATS:
      raise errors.InputError(
        f"{kernel}: train.precision={policy!r} stores {stored}: give 'bfloat16'"
      )
    if self.top_k:
      self._refuse('top_k', f"{kernel} has none: give 'blocked' or 'exact'")
    if self.head_width % 8 or self.head_width > attention_cudnn.WIDEST:
      self._refuse(
        'head_width',
        f'{kernel} needs a multiple of 8, {attention_cudnn.WIDEST} at most',
      )

  def settle(self, config):
    """Returns the options with the length that a window of 0 stands for."""
    return dataclasses.replace(self, window=self.window or config.data.length)

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
      use_bias=self.config.biases,
      dtype=self.policy.activations,
      dot_general=self.policy.dot_general,
      kernel_init=nn.initializers.xavier_uniform(),
    )

  def init_state(self, B):
    config = self.config
    if self._sees_row:
      return None
    return attention_ring.init_cache(
      B, config.window, config.heads, config.head_width, config.head_width
    )

  @property
  def _sees_row(self):
    return self.config.sees == 'row'

  def state_letters(self):
    if self._sees_row:
      return None
    return attention_ring.Cache('BxWxH', 'BxWxH', 'B')

  def project(self, x_BxLxD):
    x = self.projection(x_BxLxD)
    # Head by head, so that devices can share them.
    x = x.reshape(*x.shape[:2], self.config.heads, -1)
    return Projected(*jnp.split(x, 3, -1))

  def step(self, state, u):
    state, y = self._attend(state, jax.tree.map(lambda x: x[:, None], u), None)
    return state, y[:, 0]

  def recur(self, state, u, starts_BxL):
    if self.plan.impl == 'scan' and not self._sees_row:
      return base.scan_steps(self, state, u, starts_BxL)
    return self._attend(state, u, starts_BxL)

  def _attend(self, state, u, starts_BxL):
    """Any number of steps; `step` and `recur` are this."""
    if self._sees_row:
      return state, self._read_row(u, starts_BxL)
    options = attention.Options(
      impl='auto' if self.plan.impl == 'scan' else self.plan.impl,
      base=self.config.rotary,
      top_k=self.config.top_k,
      queries=self.plan.remat_every or self.plan.chunk_length or 0,
    )
    state, y = sequence.attend(state, *u, options, starts_BxL)
    return state, y.reshape(*y.shape[:2], -1)

  def _read_row(self, u, starts_BxL):
    base.check_one_document(starts_BxL)
    q, k, v = u
    if self.config.rotary:
      position = jnp.arange(q.shape[1])[None]
      q, k = (
        rotary.turn(x, position, self.config.rotary).astype(x.dtype)
        for x in (q, k)
      )
    options = row_attention.Options(
      'softmax', OF_ROWS[self.plan.impl], operands=self.policy.operands
    )
    y = row_attention.attend(q, k, v, options)
    return y.reshape(*y.shape[:2], -1)

  def emit(self, y):
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))
