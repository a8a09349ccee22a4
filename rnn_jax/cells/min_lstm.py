"""Minimal LSTM: coupled input and forget gates, i = 1 - f.

    f, o = sigmoid(W x_t + U h_{t-1} + b)        g = tanh(W x_t + U h_{t-1} + b)
    c_t = f * c_{t-1} + (1 - f) * g              h_t = o * tanh(c_t)

Otherwise an LSTM, with three quarters of the weights, 3 S (D + S + 1), and
S D + D of the output where S differs from D. W, U and b hold the gates in the
order f, g, o. Shapes: x BxLxD, h and c BxS, |c| <= 1.
Source: Greff et al., "LSTM: A Search Space Odyssey", 2017 (variant CIFG).
"""

from rnn_jax.cells import lstm

LOGICAL_AXES = lstm.LOGICAL_AXES
Config = lstm.Config


class Cell(lstm.Cell):
  """The cell; see the module's docstring."""

  kind = 'min_lstm'
  parts = 3

  def gate_biases(self) -> tuple[float, ...]:
    return self.config.forget_bias, 0.0, 0.0

  def _raw(self, state, u):
    """Returns 1 - f, f, g and o before their nonlinearity."""
    f, g, o = super()._raw(state, u)
    return -f, f, g, o
