"""Multi-head softmax attention as a cell: its state is a window of the past.

    q, k, v = W x        o = Wo [y_1; ...; y_H],  y_h of `ops.attention`

A step sees itself and the `window` steps before it, within its own document;
with a `top_k` only those with the highest scores. Unlike the state of a
recurrent cell, this one stores every step separately: it grows with the window,
and a step that leaves the window is forgotten at once. A window of 0 is
data.length, all of a row; a longer generated text sees that many steps. With
sees='row' a step sees all of its row, such as an image, and there is no state.

Shapes: x BxLxD, q, k, v, y BxLxHxK, the state BxWxHxK twice. With H K = D and
biases there are 4 D^2 + 4 D parameters.
Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import dataclasses
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.ops import attention
from rnn_jax.ops import devices
from rnn_jax.ops import precision
from rnn_jax.ops import rotary
from rnn_jax.ops.attention import cudnn as attention_cudnn
from rnn_jax.ops.attention import ring as attention_ring
from rnn_jax.ops.attention import row as row_attention

IMPLS = ('auto', 'scan', 'exact', 'blocked', 'cudnn')
ROW_IMPLS = {  # the impls of sees='row', as `ops.attention.row` names them
  'auto': 'auto',
  'scan': 'auto',  # there are no steps to scan
  'exact': 'pairs',
  'blocked': 'blocked',
}
LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'projection/bias': 'H',
  'output/kernel': 'HxD',
  'output/bias': 'D+H',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  heads: int = 4
  head_width: int = 32
  window: int = 0  # earlier steps that a step sees; 0: data.length
  top_k: int = 0  # the number of highest scores in the softmax; 0: all
  sees: str = 'past'  # or 'row': all of it, later steps included
  rotary: float = 10_000.0  # base of rotary positions; 0: no positions
  biases: bool = False  # on q, k, v and the output
  dropout: float = 0.0  # on y

  def check(self, config: config_lib.Config) -> None:
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
      self._refuse('head_width', 'rotary positions need an even number')
    self._check_dropout()
    base.check_sight(self.sees, config)
    if self.sees == 'row':
      self._check_row(config)
      return
    data = config.data
    # A carried state reaches back beyond its row.
    if self.window > data.length and not data.carry_state:
      self._refuse(
        'window',
        f'above data.length={data.length}: give 0 for all of a row',
      )
    base.check_impl(config, IMPLS)
    base.check_steps(config)
    if config.recurrence.impl == 'cudnn':
      self._check_cudnn(config.train.precision)

  def _check_row(self, config):
    # A run's stored config has the window that `settle` returned.
    for key, allowed in (('window', (0, config.data.length)), ('top_k', (0,))):
      if getattr(self, key) not in allowed:
        self._refuse(key, "sees='row' sees all of it: give 0")
    base.check_impl(config, tuple(ROW_IMPLS))
    inner, width = self.heads * self.head_width, config.model.width
    if inner != width:
      self._refuse(
        'heads',
        f'with cell.head_width={self.head_width} they are {inner} wide, and '
        f'model.width={width}: give heads that divide it, and cell.head_width '
        '= width / heads',
      )

  def _check_cudnn(self, policy):
    kernel = "recurrence.impl='cudnn'"
    dtype = jnp.dtype(precision.POLICIES[policy].activations).name
    if dtype not in attention_cudnn.FORMATS:
      raise errors.InputError(
        f"{kernel}: train.precision={policy!r} stores {dtype}: give 'bfloat16'"
      )
    if self.top_k:
      self._refuse('top_k', f"{kernel} has no top_k: use 'blocked' or 'exact'")
    if self.head_width % 8 or self.head_width > attention_cudnn.WIDEST:
      self._refuse(
        'head_width',
        f'{kernel} needs a multiple of 8, {attention_cudnn.WIDEST} at most',
      )

  def settle(self, config: config_lib.Config) -> Self:
    """Returns the options with data.length for a window of 0."""
    return dataclasses.replace(self, window=self.window or config.data.length)


class Projected(NamedTuple):
  """The projections of the input."""

  q_BxLxHxK: jax.Array
  k_BxLxHxK: jax.Array
  v_BxLxHxK: jax.Array


class Cell(base.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config = self.config
    self.projection = self._dense(3 * config.heads * config.head_width)
    self.output = self._dense(self.width)
    self.drop = nn.Dropout(config.dropout)

  def _dense(self, width):
    return self.dense(
      width,
      use_bias=self.config.biases,
      kernel_init=nn.initializers.xavier_uniform(),
    )

  def init_state(self, B: int) -> attention_ring.Cache | None:
    config = self.config
    if self._sees_row:
      return None
    return attention_ring.init_cache(
      B, config.window, config.heads, config.head_width, config.head_width
    )

  @property
  def _sees_row(self):
    return self.config.sees == 'row'

  def state_axes(self) -> attention_ring.Cache | None:
    if self._sees_row:
      return None
    return attention_ring.Cache._make(['BxWxH', 'BxWxH', 'B'])

  def project(self, x_BxLxD: jax.Array) -> Projected:
    x = self.projection(x_BxLxD)
    # Head by head, so that they can be sharded.
    x = x.reshape(*x.shape[:2], self.config.heads, -1)
    return Projected(*jnp.split(x, 3, -1))

  def step(
    self, state: attention_ring.Cache | None, u: Projected
  ) -> tuple[attention_ring.Cache | None, jax.Array]:
    state, y = self._attend(state, jax.tree.map(lambda x: x[:, None], u), None)
    return state, y[:, 0]

  def recur(
    self,
    state: attention_ring.Cache | None,
    u: Projected,
    starts_BxL: jax.Array | None,
  ) -> tuple[attention_ring.Cache | None, jax.Array]:
    if self.plan.impl == 'scan' and not self._sees_row:
      return base.scan_steps(self, state, u, starts_BxL)
    return self._attend(state, u, starts_BxL)

  def _attend(self, state, u, starts_BxL):
    """Runs any number of steps, for `step` and `recur`."""
    if self._sees_row:
      return state, self._read_row(u, starts_BxL)
    options = attention.Options(
      impl='auto' if self.plan.impl == 'scan' else self.plan.impl,
      base=self.config.rotary,
      top_k=self.config.top_k,
      queries=self.plan.remat_every or self.plan.chunk_length or 0,
    )
    state, y = devices.current().attend(state, *u, options, starts_BxL)
    return state, y.reshape(*y.shape[:2], -1)

  def _read_row(self, u, starts_BxL):
    base.check_one_document(starts_BxL)
    q, k, v = u
    if self.config.rotary:
      position = jnp.arange(q.shape[1])[None]
      q, k = (
        rotary.rotate(x, position, self.config.rotary).astype(x.dtype)
        for x in (q, k)
      )
    options = row_attention.Options(
      'softmax', ROW_IMPLS[self.plan.impl], operands=self.policy.operands
    )
    y = row_attention.attend(q, k, v, options)
    return y.reshape(*y.shape[:2], -1)

  def emit(self, y: jax.Array) -> jax.Array:
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))
