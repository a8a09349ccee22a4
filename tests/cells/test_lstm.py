"""The LSTM against its equations."""

import numpy as np
import pytest

from tests.cells import equations

D = equations.D


def by_hand(params, x):
  """The module's docstring, gate by gate."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  U = params['recurrent']['kernel']
  S = U.shape[0]
  h, c, out = np.zeros(S), np.zeros(S), []
  gates = {'write': [], 'keep': [], 'read': []}
  for x_t in x:
    i, f, g, o = (
      x_t @ W[:, n * S : (n + 1) * S]
      + h @ U[:, n * S : (n + 1) * S]
      + b[n * S : (n + 1) * S]
      for n in range(4)
    )
    i, f, o = map(equations.sigmoid, (i, f, o))
    c = f * c + i * np.tanh(g)
    h = o * np.tanh(c)
    out.append(h)
    for name, gate in zip(gates, (i, f, o), strict=True):
      gates[name].append(gate)
  return np.stack(out), gates


@pytest.mark.parametrize('width', (0, 3))
def test_it_equals_its_equations(width):
  equations.compare('lstm', {'state_width': width}, by_hand)


def test_it_begins_with_a_high_forget_gate():
  params = equations.initial('lstm', forget_bias=2.0)
  want = np.repeat([0.0, 2.0, 0.0, 0.0], D)
  np.testing.assert_array_equal(params['projection']['bias'], want)


def test_it_has_as_many_parameters_as_documented():
  assert equations.count('lstm') == 4 * D * (2 * D + 1)
  assert equations.count('lstm', state_width=3) == 12 * (D + 4) + 4 * D


@pytest.mark.parametrize(
  ('section', 'key', 'value', 'message'),
  (
    ('cell', 'state_width', -1, 'cell.state_width=-1: give 1 or more, or 0'),
    ('cell', 'dropout', 1.0, 'cell.dropout=1.0: give a number in'),
    ('mesh', 'sequence', 2, "mesh.sequence=2: model.cell='lstm' runs a row"),
    ('recurrence', 'impl', 'chunked', "recurrence.impl='chunked': model.cell="),
  ),
)
def test_bad_options_are_refused(section, key, value, message):
  refusal = equations.refusal('lstm', section, key, value)
  assert refusal.startswith(message)
