"""The minimal LSTM against its equations."""

import numpy as np

from tests.cells import equations

D = equations.D


def by_hand(params, x):
  """The module's docstring, gate by gate."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  U = params['recurrent']['kernel']
  S = U.shape[0]
  h, c, out = np.zeros(S), np.zeros(S), []
  gates = {'keep': [], 'write': [], 'read': []}
  for x_t in x:
    f, g, o = (
      x_t @ W[:, n * S : (n + 1) * S]
      + h @ U[:, n * S : (n + 1) * S]
      + b[n * S : (n + 1) * S]
      for n in range(3)
    )
    f = equations.sigmoid(f)
    c = f * c + (1 - f) * np.tanh(g)
    o = equations.sigmoid(o)
    h = o * np.tanh(c)
    out.append(h)
    for name, gate in zip(gates, (f, 1 - f, o), strict=True):
      gates[name].append(gate)
  return np.stack(out), gates


def test_it_equals_its_equations():
  equations.compare('min_lstm', {'state_width': 3}, by_hand)


def test_it_begins_with_a_high_forget_gate():
  cell = equations.made('min_lstm', forget_bias=2.0)
  want = np.repeat([2.0, 0.0, 0.0], D)
  np.testing.assert_array_equal(cell.init_biases(None, want.shape), want)


def test_it_has_three_quarters_of_an_lstm_s_parameters():
  counts = [equations.count(name) for name in ('min_lstm', 'lstm')]
  assert counts[0] == 3 * D * (2 * D + 1)
  assert 4 * counts[0] == 3 * counts[1]


def test_bad_options_are_refused():
  refusal = equations.refusal('min_lstm', 'mesh', 'sequence', 2)
  assert refusal == (
    "mesh.sequence=2: model.cell='min_lstm' runs a row step by step: give 1"
  )
