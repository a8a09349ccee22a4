"""SimpleRNN: a gated linear recurrence with a matrix state.

Preset 'simple', as published, for H = 1:

    q = Wq x + bq    k = sigmoid(Wk x + bk)    g = sigmoid(Wg x + bg)
    v = Wv x + bv    S_t = diag(g_t) S_{t-1} + k_t v_t^T    y_t = S_t^T q_t
    o = Wo y + bo

'modified' has v = tanh(Wv x + bv), and dropout on y. 'improved' has heads; a
short causal convolution and a SiLU on q, k and v; an RMS norm per head on y,
times a SiLU gate of x, before Wo; and only one bias, of the gates, whose
initial value differs by head, so that heads forget at different speeds.
'coupled' is 'improved' with one set of keys, queries and gates for all heads of
a group, which the recurrence sees as one head with wider values, and

    S_t = diag(g_t) S_{t-1} + ((1 - g_t) k_t) v_t^T
    y_t = S_t^T q_t + d_h v_t

where d_h is one number a head, 1 at the start; the convolution has a bias, and
taps drawn evenly rather than near the identity; biases of gates differ by key.
Each of these is an option. All projections of x are one matmul (`fused`), head
by head, or one each. Optional attention over past y, with all heads
concatenated: o = Wo [y; c],

    c_t = sum_s softmax_s(query_t . y_s) y_s        t - W <= s <= t

with y_t as its query ('dot') or Wa y_t ('general').

Shapes: x BxLxD, q, k, g BxLxHxK, v, y BxLxHxP, the state BxHxKxP; in 'coupled',
H counts groups, and P holds the values of all heads of a group.
Source of the attention: Luong et al., "Effective Approaches to Attention-based
Neural Machine Translation", 2015.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells.parts import matrix
from rnn_jax.ops import attention
from rnn_jax.ops import causal_convolution
from rnn_jax.ops import devices
from rnn_jax.ops import gla
from rnn_jax.ops import precision
from rnn_jax.ops.attention import ring as attention_ring
from rnn_jax.ops.gla import native as gla_native
from rnn_jax.ops.gla import projected as gla_projected

PRESETS = ('simple', 'modified', 'improved', 'coupled')
NORMED = PRESETS[2:]  # with a convolution, a norm and an output gate
COUPLED = "cell.preset='coupled'"  # the condition of some options
TAPS = 'cell.convolution'
DECAYS = ('key', 'head')
ATTENTIONS = ('none', 'dot', 'general')
ACTIVATIONS: dict[str, tuple[str, str, str]] = {  # of q, k and v
  'simple': ('identity', 'sigmoid', 'identity'),
  'modified': ('identity', 'sigmoid', 'tanh'),
  'improved': ('silu', 'silu', 'silu'),
  'coupled': ('silu', 'silu', 'silu'),
}
FUNCTIONS = {  # by their names in ops/gla/projected.py
  'identity': lambda x: x,
  'sigmoid': jax.nn.sigmoid,
  'tanh': jnp.tanh,
  'silu': nn.silu,
}
LOGICAL_AXES = {
  'projection/kernel': 'DxH',
  'projection/bias': 'H',
  'projections_*/kernel': 'DxH',
  'projections_*/bias': 'H',
  'taps': '_xH',
  'taps_bias': 'H',
  'gate_bias': 'H',
  'skip': 'H',
  'attention_weights/kernel': '_x_',
  'output/kernel': 'HxD',
  'output/bias': 'D+H',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  # Or 'simple', 'modified', 'coupled'.
  preset: str = config_lib.option('improved', choices=PRESETS)
  heads: int = config_lib.option(4, minimum=1)
  key_width: int = config_lib.option(16, minimum=1)
  value_width: int = config_lib.option(48, minimum=1)
  fused: bool = True  # one projection of x rather than one each
  # A gate for each key row, or 'head': one for each head.
  decay: str = config_lib.option('key', choices=DECAYS)
  gate_bias: float = 3.0  # preset 'improved': sigmoid(3) = .95 decay per step
  gate_spread: float = 2.0  # first head starts at gate_bias - 2, last at + 2
  # Presets 'improved', 'coupled': number of taps; 0: none.
  convolution: int = config_lib.option(4, minimum=0)
  # Of heads, which share keys.
  groups: int = config_lib.option(1, minimum=1, needs=COUPLED)
  # Keys are scaled by 1 - g.
  input_gate: bool = config_lib.option(True, needs=COUPLED)
  skip: bool = config_lib.option(True, needs=COUPLED)  # d_h v is added to y
  taps_bias: bool = config_lib.option(True, needs=(COUPLED, TAPS))
  # Drawn evenly, not near the identity.
  even_taps: bool = config_lib.option(True, needs=(COUPLED, TAPS))
  dropout: float = config_lib.option(0.0, below=1)  # on y
  # Luong attention over past y: 'dot', 'general'.
  attention: str = config_lib.option('none', choices=ATTENTIONS)
  # Past outputs that it sees, W.
  attention_window: int = config_lib.option(512, minimum=1)

  impls: ClassVar[tuple[str, ...]] = matrix.IMPLS
  multiplying: ClassVar[tuple[str, ...]] = precision.MULTIPLYING
  own_states: ClassVar[bool] = True
  block: ClassVar[int] = gla.BLOCK

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    if self.preset != 'coupled':
      return
    if self.heads % self.groups:
      self._refuse('groups', f'it must divide cell.heads={self.heads}')
    if (shards := config.mesh.tensor) > 0 and self.groups % shards:
      self._refuse('groups', f'mesh.tensor={shards} must divide it')

  def of_shard(self, shards: int) -> Self:
    own = super().of_shard(shards)
    if self.preset != 'coupled':
      return own
    return dataclasses.replace(own, groups=self.groups // shards)

  @property
  def memories(self) -> int:
    """H of the recurrence: heads with keys of their own."""
    return self.groups if self.preset == 'coupled' else self.heads

  @property
  def columns(self) -> int:
    """P of the recurrence: the values of all heads of a memory."""
    return self.heads // self.memories * self.value_width

  @property
  def widths(self) -> dict[str, int]:
    """The channels of each part of the projection."""
    return {name: n * self.memories for name, n in self.head_widths.items()}

  @property
  def head_widths(self) -> dict[str, int]:
    """The channels of one memory, in the order of the fused projection."""
    keys = self.key_width
    gates = keys if self.decay == 'key' else 1
    parts = {'query': keys, 'key': keys, 'gate': gates, 'value': self.columns}
    if self.preset in NORMED:
      parts['output_gate'] = self.columns
    return parts


class State(NamedTuple):
  """The state between two steps. Unused parts are None."""

  memory_BxHxKxP: jax.Array
  inputs: jax.Array | None = None  # of the convolution
  outputs: attention_ring.Cache | None = None  # past ones, for attention


class Channels(NamedTuple):
  """The inputs of the recurrence."""

  q_BxLxHxK: jax.Array
  k_BxLxHxK: jax.Array
  v_BxLxHxP: jax.Array
  loga_BxLxHxK: jax.Array


class Cell(base.ParallelCell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config = self.config
    if config.fused:
      self.projection = self._dense(sum(config.widths.values()))
    else:
      self.projections = {
        name: self._dense(width) for name, width in config.widths.items()
      }
    convolves = self._normed and config.convolution
    biased = convolves and self._coupled and config.taps_bias
    skips = self._coupled and config.skip
    zeros, ones = nn.initializers.zeros, nn.initializers.ones
    even = self._coupled and config.even_taps
    draw: Callable[..., jax.Array] = (
      matrix.init_taps if even else _identity_kernel
    )
    shape = config.convolution, self._channels
    self.taps = self.param('taps', draw, shape) if convolves else None
    self.taps_bias = (
      self.param('taps_bias', zeros, shape[1:]) if biased else None
    )
    self.skip = self.param('skip', ones, (config.heads,)) if skips else None
    if self._normed:
      self.norm = nn.RMSNorm(dtype=jnp.float32, use_scale=False)
      self.gate_bias = self.param('gate_bias', self._spread_biases)
    if config.attention == 'general':
      self.attention_weights = self.xavier(self._outputs)
    self.output = self._dense(self.width)
    self.drop = nn.Dropout(config.dropout)

  @property
  def _normed(self):
    return self.config.preset in NORMED

  @property
  def _coupled(self):
    return self.config.preset == 'coupled'

  @property
  def _outputs(self):
    return self.config.heads * self.config.value_width

  @property
  def _channels(self):
    widths = self.config.widths
    return widths['query'] + widths['key'] + widths['value']

  def _spread_biases(self, key):
    del key  # not random
    config = self.config
    ends = config.gate_bias - config.gate_spread
    ends = (ends, config.gate_bias + config.gate_spread)
    gates = config.head_widths['gate']
    if self._coupled:  # over the keys, as heads share them
      return jnp.linspace(*ends, config.memories * gates)
    return jnp.repeat(jnp.linspace(*ends, config.memories), gates)

  def _dense(self, width):
    return self.xavier(width, biased=not self._normed)

  def init_state(self, B: int) -> State:
    config = self.config
    shape = (B, config.memories, config.key_width, config.columns)
    inputs = outputs = None
    if self._normed and config.convolution:
      inputs = jnp.zeros((B, config.convolution - 1, self._channels))
    if config.attention != 'none':
      widths = 1, self._outputs, self._outputs
      outputs = attention_ring.init_cache(B, config.attention_window, *widths)
    memory = jnp.zeros(shape, self.policy.states)
    return State(memory, inputs, outputs)

  def state_axes(self) -> State:
    shapes = jax.eval_shape(lambda: self.init_state(1))
    inputs = None if shapes.inputs is None else 'Bx_xH'
    outputs = jax.tree.map(lambda x: 'B', shapes.outputs)
    return State._make(['BxH', inputs, outputs])

  def project(self, x_BxLxD: jax.Array) -> jax.Array:
    """Returns the raw channels of each memory, BxLxHxC.

    C is the sum of `config.head_widths`.
    """
    if self.config.fused:
      return self._by_heads(self.projection(x_BxLxD))
    parts = [
      self._by_heads(self.projections[name](x_BxLxD))
      for name in self.config.widths
    ]
    return jnp.concatenate(parts, -1)

  def _by_heads(self, x):
    return x.reshape(*x.shape[:2], self.config.memories, -1)

  def gates(self, state: State, u_BxHxC: jax.Array) -> base.Gates:
    _, read = self.read(state.inputs, u_BxHxC[:, None])
    loga = read.loga_BxLxHxK[:, 0]
    values = {'keep': jnp.exp(loga)}
    if not self._normed:
      values['write'] = read.k_BxLxHxK[:, 0]
    return base.Gates(values, loga)

  def advance(
    self,
    state: State,
    u_BxLxHxC: jax.Array,
    starts_BxL: jax.Array | None,
    impl: str,
  ) -> tuple[State, jax.Array]:
    if self._is_native(u_BxLxHxC.dtype, impl):
      memory, inputs, y, gate = self._native(state, u_BxLxHxC, starts_BxL)
    else:
      inputs, read = self.read(state.inputs, u_BxLxHxC, starts_BxL)
      memory, y = devices.current().recurrence(
        state.memory_BxHxKxP,
        *read,
        starts_BxL=starts_BxL,
        impl=impl,
        chunk_length=matrix.chunk_length(self.plan),
        operands=self.policy.of_recurrence(impl),
      )
      gate = self._parts(u_BxLxHxC).get('output_gate')
      if (skip := self._skip()) is not None:
        y = y + skip[None, None] * read.v_BxLxHxP
    if self._normed:
      y = y.reshape(*y.shape[:2], self.config.heads, -1)
      y = self.norm(y).astype(self.policy.activations)
    y = y.reshape(*y.shape[:2], -1)
    if self._normed:
      y = y * nn.silu(gate.reshape(y.shape))
    outputs = state.outputs
    if outputs is not None:
      outputs, context = self._attend(outputs, y, starts_BxL)
      y = jnp.concatenate([y, context], -1)
    return State(memory, inputs, outputs), y

  def _skip(self):
    """Returns the weights of v in y, HxP, or None."""
    if self.skip is None:
      return None
    weights = jnp.repeat(self.skip, self.config.value_width)
    return weights.reshape(self.config.memories, -1)

  def _attend(self, outputs, y_BxLxE, starts_BxL):
    """Runs attention over the y of all heads, with unscaled scores."""
    general = self.config.attention == 'general'
    query = self.attention_weights(y_BxLxE) if general else y_BxLxE
    query, y = query[:, :, None] * self._outputs**0.5, y_BxLxE[:, :, None]
    outputs, context = devices.current().attend(
      outputs, query, y, y, attention.Options(), starts_BxL
    )
    return outputs, context[:, :, 0]

  def _is_native(self, dtype, impl):
    """Whether one library call runs all of it, on whole rows."""
    if impl not in ('auto', 'native') or devices.current().time_shards > 1:
      return False
    if self.policy.of_recurrence(impl) != 'float32':
      return False
    return impl == 'native' or not gla_projected.lacking(dtype)

  def _native(self, state, u_BxLxHxC, starts_BxL):
    """Returns (memory, inputs, y_BxLxHxP, the output gate or empty)."""
    config, bias = self.config, None
    inputs = state.inputs
    if inputs is not None:
      parts = self._parts(u_BxLxHxC[:, -inputs.shape[1] :])
      newest = _joined(parts['query'], parts['key'], parts['value'])
      inputs = causal_convolution.next_state(inputs, newest, starts_BxL)
      inputs = inputs.astype(jnp.float32)
    if self._normed:
      bias = self.gate_bias.reshape(config.memories, -1)
    widths = config.head_widths
    layout = gla_projected.Layout(
      widths['query'],
      widths['value'],
      widths['gate'],
      *ACTIVATIONS[config.preset],
      coupled=self._coupled and config.input_gate,
    )
    memory, y, gate = gla_projected.recurrence(
      layout,
      state.memory_BxHxKxP,
      u_BxLxHxC,
      gla_projected.Weights(self.taps, self.taps_bias, bias, self._skip()),
      inputs=state.inputs,
      starts_BxL=starts_BxL,
      segment=matrix.chunk_length(self.plan) or gla_native.SEGMENT,
    )
    return memory, inputs, y, gate

  def read(
    self,
    inputs: jax.Array | None,
    u_BxLxHxC: jax.Array,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[jax.Array | None, Channels]:
    """Returns (the convolution's next inputs, Channels).

    Args:
      inputs: those before the first step, BxWxE, or None.
      u_BxLxHxC: the raw channels, of `project`.
      starts_BxL: nonzero where a document begins, or None.
    """
    parts = self._parts(u_BxLxHxC)
    raw = parts['gate'].astype(jnp.float32)
    if self._normed:
      raw = raw + self.gate_bias.reshape(1, 1, *raw.shape[2:])
    channels = [parts[name] for name in ('query', 'key', 'value')]
    if inputs is not None and self.taps is not None:
      joined = _joined(*channels)
      inputs, joined = devices.current().convolve(
        inputs, joined, self.taps.astype(joined.dtype), starts_BxL
      )
      inputs = inputs.astype(jnp.float32)
      if self.taps_bias is not None:
        joined = joined + self.taps_bias.astype(joined.dtype)[None, None]
      widths = self.config.head_widths
      widths = {name: widths[name] for name in ('query', 'key', 'value')}
      channels = [*matrix.split(self._by_heads(joined), widths).values()]
    q, k, v = (
      FUNCTIONS[name](x)
      for name, x in zip(ACTIVATIONS[self.config.preset], channels, strict=True)
    )
    if self._coupled and self.config.input_gate:
      k = (k * jax.nn.sigmoid(-raw)).astype(k.dtype)
    return inputs, Channels(q, k, v, jax.nn.log_sigmoid(raw))

  def _parts(self, u_BxLxHxC):
    return matrix.split(u_BxLxHxC, self.config.head_widths)


def _joined(*parts_BxLxHx_):
  """Joins the parts of all heads in one row of channels, BxLxE."""
  x = jnp.concatenate(parts_BxLxHx_, -1)
  return x.reshape(*x.shape[:2], -1)


def _identity_kernel(key, shape, dtype=jnp.float32):
  """Draws taps near the identity: 1 for the newest input, plus noise."""
  noise = jax.random.normal(key, shape, dtype) * shape[0] ** -0.5 * 0.5
  return noise.at[0].add(1.0)
