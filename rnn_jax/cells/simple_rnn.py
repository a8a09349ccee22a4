"""SimpleRNN: a gated linear recurrence with a matrix state.

Preset 'simple', as published, for H = 1:

    q = Wq x + bq    k = sigmoid(Wk x + bk)    g = sigmoid(Wg x + bg)
    v = Wv x + bv    S_t = diag(g_t) S_{t-1} + k_t v_t^T    y_t = S_t^T q_t
    o = Wo y + bo

'modified' has v = tanh(Wv x + bv), and dropout on y. 'improved' has heads; a
short causal convolution and a SiLU on q, k and v; an RMS norm a head on y,
times a SiLU gate of x, before Wo; and no bias but the gates', which starts at
other values for other heads, so that they forget at different speeds. All
projections of x are one matmul (`fused`), head by head, or one each. Optional
attention over past y, all heads of them at once: o = Wo [y; c],

    c_t = sum_s softmax_s(query_t . y_s) y_s        t - W <= s <= t

with y_t as its query ('dot') or Wa y_t ('general').

Shapes: x BxLxD, q, k, g BxLxHxK, v, y BxLxHxP, the state BxHxKxP.
Source of the attention: Luong et al., "Effective Approaches to Attention-based
Neural Machine Translation", 2015.
"""

import dataclasses
import itertools
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.ops import attention
from rnn_jax.ops import attention_ring
from rnn_jax.ops import gla
from rnn_jax.parallel import sequence

IMPLS = ('auto', 'scan', 'chunked', 'associative', 'native', 'pallas')
PRESETS = ('simple', 'modified', 'improved')
DECAYS = ('key', 'head')
ATTENTIONS = ('none', 'dot', 'general')
LETTERS = {
  'projection/kernel': 'DxH',
  'projection/bias': 'H',
  'projections_*/kernel': 'DxH',
  'projections_*/bias': 'H',
  'taps': '_xH',
  'gate_bias': 'H',
  'attention_weights/kernel': '_x_',
  'output/kernel': 'HxD',
  'output/bias': 'D+H',
}


@dataclasses.dataclass(frozen=True)
class Config:
  """Options of the cell, section `cell` of the config."""

  preset: str = 'improved'  # or 'simple', 'modified'
  heads: int = 4
  key_width: int = 16
  value_width: int = 48
  fused: bool = True  # one projection of x rather than one each
  decay: str = 'key'  # a gate for each key row, or 'head': one for each head
  gate_bias: float = 3.0  # preset 'improved': sigmoid(3) = .95 kept a step
  gate_spread: float = 2.0  # first head starts at gate_bias - 2, last at + 2
  convolution: int = 4  # preset 'improved': taps; 0: none
  dropout: float = 0.0  # on y
  attention: str = 'none'  # Luong attention over past y: 'dot', 'general'
  attention_window: int = 512  # past outputs that it sees, W

  def check(self, config):
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for key, choices in (
      ('preset', PRESETS),
      ('decay', DECAYS),
      ('attention', ATTENTIONS),
    ):
      if getattr(self, key) not in choices:
        self._refuse(key, f'choose one of {choices}')
    for key in ('heads', 'key_width', 'value_width', 'attention_window'):
      if getattr(self, key) < 1:
        self._refuse(key, 'give 1 or more')
    if self.convolution < 0:
      self._refuse('convolution', 'give the number of taps, or 0')
    if not 0 <= self.dropout < 1:
      self._refuse('dropout', 'give a number in [0, 1)')
    base.check_impl(config, IMPLS)
    base.check_steps(config)
    if config.recurrence.impl in ('auto', 'chunked'):
      for key in ('remat.every', 'recurrence.chunk_length'):
        self._check_chunk(key, config)

  def settle(self, config):
    """Returns the options as they are: none stands for another one's."""
    del config
    return self

  def _check_chunk(self, key, config):
    section, _, name = key.partition('.')
    steps = getattr(getattr(config, section), name)
    if isinstance(steps, int) and steps > gla.BLOCK and steps % gla.BLOCK:
      raise errors.InputError(
        f'{key}={steps}: chunks above {gla.BLOCK} steps are multiples of it; '
        'give one, or use recurrence.impl="scan"'
      )

  def _refuse(self, key, remedy):
    raise errors.InputError(f'cell.{key}={getattr(self, key)!r}: {remedy}')

  @property
  def widths(self):
    """Channels of each part of the projection."""
    keys, values = self.heads * self.key_width, self.heads * self.value_width
    gates = keys if self.decay == 'key' else self.heads
    parts = {'query': keys, 'key': keys, 'gate': gates, 'value': values}
    if self.preset == 'improved':
      parts['output_gate'] = values
    return parts

  @property
  def head_widths(self):
    """Channels of one head, in the order of the fused projection's."""
    return {name: n // self.heads for name, n in self.widths.items()}


class State(NamedTuple):
  """What one step hands to the next. Unused parts are None."""

  memory_BxHxKxP: Any
  inputs: Any = None  # of the convolution
  outputs: Any = None  # past ones, for attention


class Projected(NamedTuple):
  """What the recurrence reads: raw channels, and the log-decay."""

  qkv: Any
  loga_BxLxHxK: Any
  gate: Any = None  # of the output


class Cell(base.Cell):
  """The cell; see the module's docstring."""

  def setup(self):
    config = self.config
    if config.fused:
      self.projection = self._dense(sum(config.widths.values()))
    else:
      self.projections = {
        name: self._dense(width) for name, width in config.widths.items()
      }
    if self._improved and config.convolution:
      self.taps = self.param(
        'taps', _identity_kernel, (config.convolution, self._channels)
      )
    if self._improved:
      self.norm = nn.RMSNorm(dtype=jnp.float32, use_scale=False)
      self.gate_bias = self.param('gate_bias', self._spread_biases)
    if config.attention == 'general':
      self.attention_weights = self._dense(self._outputs, biased=False)
    self.output = self._dense(self.width)
    self.drop = nn.Dropout(config.dropout)

  @property
  def _improved(self):
    return self.config.preset == 'improved'

  @property
  def _outputs(self):
    return self.config.heads * self.config.value_width

  @property
  def _channels(self):
    widths = self.config.widths
    return widths['query'] + widths['key'] + widths['value']

  @property
  def _chunk_length(self):
    every = self.plan.remat_every
    if every <= gla.BLOCK:
      return every or self.plan.chunk_length
    return -(-every // gla.BLOCK) * gla.BLOCK  # 'sqrt' is rarely a multiple

  def _spread_biases(self, key):
    del key  # one value for all gates of a head, nothing drawn
    config = self.config
    ends = config.gate_bias - config.gate_spread
    ends = (ends, config.gate_bias + config.gate_spread)
    biases_H = jnp.linspace(*ends, config.heads)
    return jnp.repeat(biases_H, config.widths['gate'] // config.heads)

  def _dense(self, width, biased=True):
    return nn.Dense(
      width,
      use_bias=biased and not self._improved,
      dtype=self.policy.activations,
      dot_general=self.policy.dot_general,
      kernel_init=nn.initializers.xavier_uniform(),
    )

  def init_state(self, B):
    config = self.config
    shape = (B, config.heads, config.key_width, config.value_width)
    inputs = outputs = None
    if self._improved and config.convolution:
      inputs = jnp.zeros((B, config.convolution - 1, self._channels))
    if config.attention != 'none':
      widths = 1, self._outputs, self._outputs
      outputs = attention_ring.init_cache(B, config.attention_window, *widths)
    return State(jnp.zeros(shape), inputs, outputs)

  def state_letters(self):
    shapes = jax.eval_shape(lambda: self.init_state(1))
    return State(
      'BxH',
      None if shapes.inputs is None else 'Bx_xH',
      jax.tree.map(lambda x: 'B', shapes.outputs),
    )

  def project(self, x_BxLxD):
    config = self.config
    if config.fused:
      x = self._by_heads(self.projection(x_BxLxD))
      parts = _split(x, config.head_widths)
    else:
      parts = {
        name: self._by_heads(project(x_BxLxD))
        for name, project in self.projections.items()
      }
    raw = parts['gate'].astype(jnp.float32)
    if self._improved:
      raw = raw + self.gate_bias.reshape(1, 1, *raw.shape[2:])
    qkv = jnp.concatenate([parts['query'], parts['key'], parts['value']], -1)
    gate = parts.get('output_gate')
    return Projected(
      qkv.reshape(*qkv.shape[:2], -1),
      jax.nn.log_sigmoid(raw),
      None if gate is None else gate.reshape(*gate.shape[:2], -1),
    )

  def _by_heads(self, x):
    return x.reshape(*x.shape[:2], self.config.heads, -1)

  def step(self, state, u):
    one = jax.tree.map(lambda x: x[:, None], u)
    state, y = self._advance(state, one, None, 'step')
    return state, y[:, 0]

  def gates(self, state, u):
    found = {'keep': jnp.exp(u.loga_BxLxHxK)}
    if not self._improved:
      _, _, k, _ = self._read_channels(state.inputs, u.qkv[:, None], None)
      found['write'] = k[:, 0]
    return base.Gates(found, u.loga_BxLxHxK)

  def recur(self, state, u, starts_BxL):
    if self.plan.impl == 'scan':
      return base.scan_steps(self, state, u, starts_BxL)
    return self._advance(state, u, starts_BxL, self.plan.impl)

  def _advance(self, state, u, starts_BxL, impl):
    """Any number of steps; `step` and `recur` are this."""
    inputs, q, k, v = self._read_channels(state.inputs, u.qkv, starts_BxL)
    memory, y = sequence.recurrence(
      state.memory_BxHxKxP,
      q,
      k,
      v,
      u.loga_BxLxHxK,
      starts_BxL=starts_BxL,
      impl=impl,
      chunk_length=self._chunk_length,
    )
    if self._improved:
      y = self.norm(y).astype(self.policy.activations)
    y = y.reshape(*y.shape[:2], -1)
    if u.gate is not None:
      y = y * nn.silu(u.gate)
    outputs = state.outputs
    if outputs is not None:
      outputs, context = self._look_back(outputs, y, starts_BxL)
      y = jnp.concatenate([y, context], -1)
    return State(memory, inputs, outputs), y

  def _look_back(self, outputs, y_BxLxE, starts_BxL):
    """Attention of one head, all heads' y, with scores as they come."""
    general = self.config.attention == 'general'
    query = self.attention_weights(y_BxLxE) if general else y_BxLxE
    query, y = query[:, :, None] * self._outputs**0.5, y_BxLxE[:, :, None]
    outputs, context = sequence.attend(
      outputs, query, y, y, attention.Options(), starts_BxL
    )
    return outputs, context[:, :, 0]

  def _read_channels(self, inputs, qkv, starts_BxL):
    config = self.config
    if inputs is not None:
      inputs, qkv = sequence.convolve(
        inputs, qkv, self.taps.astype(qkv.dtype), starts_BxL
      )
      inputs = inputs.astype(jnp.float32)
    if self._improved:
      qkv = nn.silu(qkv)
    widths = {n: config.head_widths[n] for n in ('query', 'key', 'value')}
    parts = _split(self._by_heads(qkv), widths)
    q, k, v = parts['query'], parts['key'], parts['value']
    if config.preset == 'improved':
      return inputs, q, k, v
    v = jnp.tanh(v) if config.preset == 'modified' else v
    return inputs, q, jax.nn.sigmoid(k), v

  def emit(self, y):
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))


def separate_projections(params, config):
  """Parameters of a fused cell as those of one with `fused=False`."""
  params = dict(params)
  fused = params.pop('projection')
  for leaf, x in fused.items():
    by_heads = x.reshape(*x.shape[:-1], config.heads, -1)
    for name, part in _split(by_heads, config.head_widths).items():
      own = params.setdefault(f'projections_{name}', {})
      own[leaf] = part.reshape(*x.shape[:-1], -1)
  return params


def fuse_projections(params, config):
  """The inverse of `separate_projections`."""
  params = dict(params)
  parts = [params.pop(f'projections_{name}') for name in config.widths]
  params['projection'] = {}
  for leaf, like in parts[0].items():
    by_heads = [
      part[leaf].reshape(*like.shape[:-1], config.heads, -1) for part in parts
    ]
    joined = jnp.concatenate(by_heads, -1)
    params['projection'][leaf] = joined.reshape(*like.shape[:-1], -1)
  return params


def _split(x, widths):
  """Cuts the last axis into named parts."""
  # One split, whose gradient is one concatenation, not a sum of padded parts.
  ends = itertools.accumulate(widths.values())
  return dict(zip(widths, jnp.split(x, list(ends)[:-1], -1), strict=True))


def _identity_kernel(key, shape, dtype=jnp.float32):
  """The newest input passes; the others are mixed in a little."""
  noise = jax.random.normal(key, shape, dtype) * shape[0] ** -0.5 * 0.5
  return noise.at[0].add(1.0)
