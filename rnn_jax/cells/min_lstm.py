"""Minimal LSTM: what is forgotten makes room for what is written, i = 1 - f.

    f, o = sigmoid(W x_t + U h_{t-1} + b)        g = tanh(W x_t + U h_{t-1} + b)
    c_t = f * c_{t-1} + (1 - f) * g              h_t = o * tanh(c_t)

An LSTM whose input and forget gates are coupled: the recurrence stays that of
h, with three quarters of the weights, 3 S (D + S + 1), and S D + D of the
output where S differs from D. W, U and b hold the gates in the order f, g, o.
Shapes: x BxLxD, h and c BxS, |c| <= 1.
Source: Greff et al., "LSTM: A Search Space Odyssey", 2017 (variant CIFG).
"""

from rnn_jax.cells import lstm

LETTERS = lstm.LETTERS
Config = lstm.Config


class Cell(lstm.Cell):
  """The cell; see the module's docstring."""

  kind = 'min_lstm'
  parts = 3

  def gate_biases(self):
    return self.config.forget_bias, 0.0, 0.0

  def _raw(self, state, u):
    """1 - f, f, g and o before their nonlinearity."""
    f, g, o = super()._raw(state, u)
    return -f, f, g, o
