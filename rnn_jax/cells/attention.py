"""Multi-head softmax attention as a cell: its state is a window of the past.

    q, k, v = W x        o = Wo [y_1; ...; y_H],  y_h of `ops.attention`

A step sees itself and the `window` steps before it, within its own document;
with a `top_k` only those with the highest scores. Unlike the state of a
recurrent cell, this one stores every step separately: it grows with the window,
and a step that leaves the window is forgotten at once. A window of 0 is
data.length, all of a row; a longer generated text sees that many steps. With
sees='row' a step sees all of its row, such as an image, and there is no state.

With `kv_heads` = G below H, groups of H / G queries share keys and values, and
the state is so much smaller. Rotary positions may rotate only the first
`rotary_width` channels of a head, and `rotary_scaling` lets them turn more
slowly, as in models that were extended to longer texts (ops/rotary.py). With
`qk_norm` each q and k is normed over its channels before it is rotated and
stored, with a scale for all queries and one for all keys: rms_norm(q) * s,
rms_norm(k) * t, or with `norm_plus_one` rms_norm(q) * (1 + s). With
`output_gate` x also gates what the heads read, each channel by itself: o = Wo
[y_1 * sigmoid(g_1); ...], g = Wg x.

Shapes: x BxLxD, q, y BxLxHxK, k, v BxLxGxK, the state BxWxGxK twice. With
G = H, H K = D and biases there are 4 D^2 + 4 D parameters.
Source: Vaswani et al., "Attention Is All You Need", 2017; Ainslie et al., "GQA:
Training Generalized Multi-Query Transformer Models from Multi-Head
Checkpoints", 2023; Dehghani et al., "Scaling Vision Transformers to 22 Billion
Parameters", 2023 (norms of q and k); Qiu et al., "Gated Attention for Large
Language Models: Non-linearity, Sparsity, and Attention-Sink-Free", 2025.
"""

import dataclasses
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells.parts import norms
from rnn_jax.ops import attention
from rnn_jax.ops import devices
from rnn_jax.ops import precision
from rnn_jax.ops import rotary
from rnn_jax.ops.attention import cudnn as attention_cudnn
from rnn_jax.ops.attention import ring as attention_ring
from rnn_jax.ops.attention import row as row_attention

ROW_IMPLS = {  # the impls of sees='row', as `ops.attention.row` names them
  'auto': 'auto',
  'scan': 'auto',  # there are no steps to scan
  'exact': 'pairs',
  'blocked': 'blocked',
}
LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'projection/bias': 'H',
  'query_norm/scale': '_',
  'key_norm/scale': '_',
  'output/kernel': 'HxD',
  'output/bias': 'D+H',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  heads: int = config_lib.option(4, minimum=1)
  head_width: int = config_lib.option(32, minimum=1)
  # Of keys and values, which queries share; 0: heads.
  kv_heads: int = config_lib.option(0, minimum=0)
  # Earlier steps that a step sees; 0: data.length.
  window: int = config_lib.option(0, minimum=0)
  # The number of highest scores in the softmax; 0: all.
  top_k: int = config_lib.option(0, minimum=0)
  sees: str = 'past'  # or 'row': all of it, later steps included
  rotary: float = 10_000.0  # base of rotary positions; 0: no positions
  # Channels of a head that they rotate; 0: all.
  rotary_width: int = config_lib.option(0, minimum=0, needs='cell.rotary')
  # (), (factor,) for all angles, Llama 3's (factor, low, high, length), or
  # YaRN's (factor, low, high, length, size).
  rotary_scaling: tuple[float, ...] = config_lib.option((), needs='cell.rotary')
  # RMS norms of q and k, with scales that all heads share.
  qk_norm: bool = config_lib.option(False, excludes='mesh.tensor!=1')
  # Of these norms.
  norm_epsilon: float = config_lib.option(1e-6, above=0, needs='cell.qk_norm')
  # These scales are 1 + their parameters.
  norm_plus_one: bool = config_lib.option(False, needs='cell.qk_norm')
  output_gate: bool = False  # y times sigmoid(W x)
  # Of the scores q . k; 0: head_width ** -0.5.
  score_scale: float = config_lib.option(0.0, minimum=0)
  biases: bool = False  # on q, k, v and the output
  projection_bias: bool = config_lib.option(  # on q, k and v too
    True, needs='cell.biases'
  )
  output_bias: bool = config_lib.option(  # on the output too
    True, needs='cell.biases'
  )
  dropout: float = config_lib.option(0.0, below=1)  # on y

  impls: ClassVar[tuple[str, ...]] = (
    'auto',
    'scan',
    'exact',
    'blocked',
    'cudnn',
  )
  own_states: ClassVar[bool] = True

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.heads % self.groups:
      self._refuse('kv_heads', f'it must divide cell.heads={self.heads}')
    if (shards := config.mesh.tensor) > 0 and self.kv_heads % shards:
      self._refuse('kv_heads', f'mesh.tensor={shards} must divide it')
    self._check_biases()
    self._check_rotary()
    base.check_sight(self.sees, config)
    super().check(config)
    if self.sees == 'row':
      self._check_row(config)
      return
    base.check_window(self.window, config)
    if config.recurrence.impl == 'cudnn':
      self._check_cudnn(config.train.precision)

  @property
  def groups(self) -> int:
    """G, the number of heads of keys and values."""
    return self.kv_heads or self.heads

  @property
  def available_impls(self) -> tuple[str, ...]:
    return self.impls if self.sees == 'past' else (*ROW_IMPLS,)

  def of_shard(self, shards: int) -> Self:
    own = super().of_shard(shards)
    return dataclasses.replace(own, kv_heads=self.kv_heads // shards)

  def _check_biases(self):
    if not (self.projection_bias or self.output_bias):
      self._refuse(
        'biases',
        'neither cell.projection_bias nor cell.output_bias has one: give False',
      )

  def _check_rotary(self):
    if not self.rotary:
      return
    if self.rotary <= 1:
      self._refuse('rotary', 'give a number above 1, or 0 for no positions')
    if self.rotary_width > self.head_width:
      self._refuse(
        'rotary_width', f'give up to cell.head_width={self.head_width}'
      )
    key = 'rotary_width' if self.rotary_width else 'head_width'
    if getattr(self, key) % 2:
      self._refuse(key, 'rotary positions need an even number')
    if (scaling := self.rotary_scaling) and not _is_scaling(*scaling):
      self._refuse(
        'rotary_scaling',
        'give (), (factor,), (factor, low, high, length) or (factor, low, '
        'high, length, size), with a factor of 1 or more, 0 < low < high, and '
        'a length and a size above 0',
      )

  def _check_row(self, config):
    # A run's stored config has the window that `resolve` returned.
    for key, allowed in (('window', (0, config.data.length)), ('top_k', (0,))):
      if getattr(self, key) not in allowed:
        self._refuse(key, "sees='row' sees all of it: give 0")
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

  def resolve(self, config: config_lib.Config) -> Self:
    """Returns the options with data.length for a window of 0."""
    return dataclasses.replace(self, window=self.window or config.data.length)


class Projected(NamedTuple):
  """The projections of the input."""

  q_BxLxHxK: jax.Array
  k_BxLxGxK: jax.Array
  v_BxLxGxK: jax.Array
  gate_BxLxHxK: jax.Array | None  # of y, before its sigmoid


class Cell(base.ParallelCell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config = self.config
    heads = config.heads * (1 + config.output_gate) + 2 * config.groups
    biased = config.biases
    self.projection = self.xavier(
      heads * config.head_width, biased and config.projection_bias
    )
    self.output = self.xavier(self.width, biased and config.output_bias)
    if config.qk_norm:
      self.query_norm = self._norm()
      self.key_norm = self._norm()
    self.drop = nn.Dropout(config.dropout)

  def _norm(self):
    epsilon = self.config.norm_epsilon
    if self.config.norm_plus_one:
      return norms.PlusOne(epsilon, jnp.float32)
    return nn.RMSNorm(epsilon, dtype=jnp.float32)

  def init_state(self, B: int) -> attention_ring.Cache | None:
    config = self.config
    if self._sees_row:
      return None
    return attention_ring.init_cache(
      B, config.window, config.groups, config.head_width, config.head_width
    )

  @property
  def _sees_row(self):
    return self.config.sees == 'row'

  def state_axes(self) -> attention_ring.Cache | None:
    if self._sees_row:
      return None
    return attention_ring.Cache._make(['BxWxH', 'BxWxH', 'B'])

  def project(self, x_BxLxD: jax.Array) -> Projected:
    return self.parts(self.projection(x_BxLxD))

  def parts(self, x_BxLxH: jax.Array) -> Projected:
    """Returns the parts of the projected input."""
    config, x = self.config, x_BxLxH
    # Group by group, so that they can be sharded: its queries, each followed by
    # its gate, its k, its v.
    x = x.reshape(*x.shape[:2], config.groups, -1)
    ends = x.shape[-1] - 2 * config.head_width, x.shape[-1] - config.head_width
    q, k, v = jnp.split(x, ends, -1)
    q, gate = q.reshape(*x.shape[:2], config.heads, -1), None
    if config.output_gate:
      q, gate = jnp.split(q, 2, -1)
    if config.qk_norm:
      q = self.query_norm(q).astype(x.dtype)
      k = self.key_norm(k).astype(x.dtype)
    if config.score_scale:  # which the softmax multiplies by K ** -0.5
      q = q * (config.score_scale * config.head_width**0.5)
    return Projected(q, k, v, gate)

  def advance(
    self,
    state: attention_ring.Cache | None,
    u: Projected,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[attention_ring.Cache | None, jax.Array]:
    del impl  # the plan's: a step is a row of one
    if state is None:
      base.check_one_document(starts_BxL)
      return None, self._gated(self._read_row(u), u)
    options = attention.Options(
      impl='auto' if self.plan.impl == 'scan' else self.plan.impl,
      base=self.config.rotary,
      rotated=self.config.rotary_width,
      scaling=self.config.rotary_scaling,
      top_k=self.config.top_k,
      queries=self.plan.remat_every or self.plan.chunk_length or 0,
    )
    state, y = devices.current().attend(state, *u[:3], options, starts_BxL)
    return state, self._gated(y, u)

  def _gated(self, y_BxLxHxK, u):
    """Returns y times its gate, if there is one, with all heads in a row."""
    y = y_BxLxHxK
    if u.gate_BxLxHxK is not None:
      y *= jax.nn.sigmoid(u.gate_BxLxHxK)
    return y.reshape(*y.shape[:2], -1)

  def _read_row(self, u):
    q, k, v, _ = u
    if self.config.rotary:
      position = jnp.arange(q.shape[1])[None]
      config = self.config
      angles = config.rotary, config.rotary_width, config.rotary_scaling
      q, k = (
        rotary.rotate(x, position, *angles).astype(x.dtype) for x in (q, k)
      )
    k, v = (jnp.repeat(x, q.shape[2] // k.shape[2], 2) for x in (k, v))
    options = row_attention.Options(
      'softmax', ROW_IMPLS[self.plan.impl], operands=self.policy.operands
    )
    return row_attention.attend(q, k, v, options)


def _is_scaling(factor, *band):
  if factor < 1 or len(band) not in (0, 3, 4):
    return False
  return not band or (0 < band[0] < band[1] and min(band[2:]) > 0)
