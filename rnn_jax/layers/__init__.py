"""Recurrences as layers of your own Flax model.

    from rnn_jax import layers

    class Classifier(nn.Module):
      @nn.compact
      def __call__(self, tokens, lengths):
        x = nn.Embed(256, 32)(tokens)
        x = layers.Bidirectional(layers.LSTM(64))(x, lengths=lengths)
        x = layers.GRU(64)(x, lengths=lengths)
        return nn.Dense(2)(layers.last(x, lengths))

`base` has the methods that all layers share. A layer's own fields are options
of its cell in rnn_jax/cells, whose file has the equations. docs/layers.md is a
guide.
"""

import dataclasses
from typing import Any
from typing import ClassVar

import flax.linen as nn

from rnn_jax import errors
from rnn_jax.layers.base import Layer as Layer
from rnn_jax.layers.base import Recurrence as Recurrence
from rnn_jax.layers.bidirectional import Bidirectional as Bidirectional
from rnn_jax.layers.rows import last as last


class SimpleRNN(Layer):
  """The gated linear recurrence with a matrix state; see cells/simple_rnn.py.

  x BxLxD to y BxLxF. The state has H K P numbers, and the window of the
  convolution.

  Attributes:
    features: F, the width of y.
    preset: 'improved', 'coupled', or as published: 'simple', 'modified'.
    heads: H.
    key_width: K of a head.
    value_width: P of a head; 0: F / H, rounded up.
    decay: a gate for each 'key' row of the state, or for each 'head'.
    gate_bias: of the forget gates in 'improved' and 'coupled', initially.
    gate_spread: the first head's is so much lower, the last head's higher.
    convolution: taps of the convolution in these; 0: none.
    groups: of heads that share keys, queries and gates in 'coupled'.
    input_gate: in 'coupled', keys are scaled by 1 - the forget gate.
    skip: in 'coupled', a weight of each head adds its value to its output.
    taps_bias: in 'coupled', of the convolution.
    even_taps: in 'coupled', drawn evenly rather than near the identity.
    attention: over past outputs: 'none', 'dot' or 'general'.
    attention_window: past outputs that it sees.
  """

  features: int
  _: dataclasses.KW_ONLY
  preset: str = 'improved'
  heads: int = 4
  key_width: int = 16
  value_width: int = 0
  decay: str = 'key'
  gate_bias: float = 3.0
  gate_spread: float = 2.0
  convolution: int = 4
  groups: int = 1
  input_gate: bool = True
  skip: bool = True
  taps_bias: bool = True
  even_taps: bool = True
  attention: str = 'none'
  attention_window: int = 512

  cell: ClassVar[str] = 'simple_rnn'

  @nn.nowrap
  def cell_options(self) -> dict[str, Any]:
    width = self.value_width or -(-self.features // max(self.heads, 1))
    return super().cell_options() | {'value_width': width}


class LSTM(Layer):
  """Long short-term memory (Hochreiter and Schmidhuber, 1997).

  x BxLxD to y BxLxF. The state is h and c, 2 F numbers. Gates are in the order
  of torch.nn.LSTM, whose weights rnn_jax.interop.torch_cells converts.

  Attributes:
    features: F, the width of y and of the state.
    forget_bias: of the forget gate, initially.
  """

  features: int
  _: dataclasses.KW_ONLY
  forget_bias: float = 1.0

  cell: ClassVar[str] = 'lstm'


class GRU(Layer):
  """The gated recurrent unit (Cho et al., 2014).

  x BxLxD to y BxLxF. The state is h, F numbers.

  Attributes:
    features: F, the width of y and of the state.
    keep_bias: of the gate that keeps h, initially.
    reset: 'after' the product with h, as torch.nn.GRU, or 'before' it, as
      published.
  """

  features: int
  _: dataclasses.KW_ONLY
  keep_bias: float = 1.0
  reset: str = 'after'

  cell: ClassVar[str] = 'gru'


class MinLSTM(Layer):
  """An LSTM whose input gate is 1 - f (Greff et al., 2017, variant CIFG).

  x BxLxD to y BxLxF. The state is h and c, 2 F numbers.

  Attributes:
    features: F, the width of y and of the state.
    forget_bias: of the forget gate, initially.
  """

  features: int
  _: dataclasses.KW_ONLY
  forget_bias: float = 1.0

  cell: ClassVar[str] = 'min_lstm'


class SLSTM(Layer):
  """An LSTM with exponential gates and a normalizer (Beck et al., 2024).

  Heads of F / H units read their own h. x BxLxD to y BxLxF. The state is h, c,
  n and m, 4 F numbers.

  Attributes:
    features: F, the width of y and of the state.
    heads: H, which divides F.
    forget_gate: 'sigmoid' or 'exponential'.
    forget_bias: of a sigmoid forget gate, initially.
    norm: of each head of y, 'layer' or 'none'.
  """

  features: int
  _: dataclasses.KW_ONLY
  heads: int = 1
  forget_gate: str = 'sigmoid'
  forget_bias: float = 1.0
  norm: str = 'layer'

  cell: ClassVar[str] = 'slstm'


class QRNN(Layer):
  """The quasi-recurrent network (Bradbury et al., 2016).

  Gates are a convolution of the inputs, and the recurrence is elementwise.
  x BxLxD to y BxLxF. The state is h and the last inputs, F + (k - 1) D numbers:
  `init_state(B, D)`.

  Attributes:
    features: F, the width of y and of h.
    taps: k, inputs that a gate sees.
    pooling: 'f', 'fo' or 'ifo'.
    forget_bias: of the forget gate, initially.
  """

  features: int
  _: dataclasses.KW_ONLY
  taps: int = 2
  pooling: str = 'fo'
  forget_bias: float = 1.0

  cell: ClassVar[str] = 'qrnn'


class RHN(Layer):
  """The recurrent highway network (Zilly et al., 2016).

  x BxLxD to y BxLxF. The state is h, F numbers.

  Attributes:
    features: F, the width of y and of the state.
    depth: highway layers within a step.
    transform_bias: of the transform gates, initially.
  """

  features: int
  _: dataclasses.KW_ONLY
  depth: int = 3
  transform_bias: float = -2.0

  cell: ClassVar[str] = 'rhn'


class Attention(Layer):
  """Causal multi-head attention over a window (Vaswani et al., 2017).

  x BxLxD to y BxLxF. The state is the keys and values of the window, 2 W G K
  numbers with G = kv_heads: one step costs the same at any position.

  Attributes:
    features: F, the width of y.
    heads: H.
    head_width: K of a head, even with rotary positions; 0: F / H.
    kv_heads: heads of keys and values, which queries share; 0: H.
    window: W, earlier steps that a step sees.
    top_k: the number of highest scores in the softmax; 0: all.
    rotary: base of rotary positions; 0: no positions.
    rotary_width: channels of a head that they rotate; 0: all.
    rotary_scaling: of their angles; see ops/rotary.py.
    qk_norm: whether q and k are normed.
    norm_epsilon: of these norms.
    norm_plus_one: whether their scales are 1 + their parameters.
    output_gate: whether sigmoid(W x) gates y.
    score_scale: of the scores q . k; 0: K ** -0.5.
    biases: whether q, k, v and y have biases.
    projection_bias: with `biases`, whether q, k and v have one.
    output_bias: with `biases`, whether y has one.
  """

  features: int
  _: dataclasses.KW_ONLY
  heads: int = 4
  head_width: int = 0
  kv_heads: int = 0
  window: int = 512
  top_k: int = 0
  rotary: float = 10_000.0
  rotary_width: int = 0
  rotary_scaling: tuple[float, ...] = ()
  qk_norm: bool = False
  norm_epsilon: float = 1e-6
  norm_plus_one: bool = False
  output_gate: bool = False
  score_scale: float = 0.0
  biases: bool = False
  projection_bias: bool = True
  output_bias: bool = True

  cell: ClassVar[str] = 'attention'

  @nn.nowrap
  def cell_options(self) -> dict[str, Any]:
    if self.window < 1:
      errors.refuse('window', self.window, 'give 1 or more')
    width = self.head_width or self.features // max(self.heads, 1)
    return super().cell_options() | {'head_width': width}
