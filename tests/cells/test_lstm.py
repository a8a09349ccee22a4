"""The LSTM against its equations."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import lstm
from tests.cells import draws

B, L, D = 2, 7, 5
CLOSE = 2e-6  # measured: 3e-7, of the largest number


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def equations(params, x):
  """The module's docstring, one row of a batch, gate by gate."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  U = params['recurrent']['kernel']
  S = U.shape[0]
  h, c, out = np.zeros(S), np.zeros(S), []
  for x_t in x:
    i, f, g, o = (
      x_t @ W[:, n * S : (n + 1) * S]
      + h @ U[:, n * S : (n + 1) * S]
      + b[n * S : (n + 1) * S]
      for n in range(4)
    )
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    out.append(h)
  out = np.stack(out)
  if 'output' in params:
    out = out @ params['output']['kernel'] + params['output']['bias']
  return out


@pytest.mark.parametrize('width', (0, 3))
def test_it_is_what_its_docstring_says(width):
  cell = lstm.Cell(lstm.Config(state_width=width), D)
  x, state = draws.normal(B, L, D), cell.init_state(B)
  variables = draws.parameters(cell.init, state, x)
  _, got = jax.jit(cell.apply)(variables, state, x)
  params = jax.tree.map(np.float64, variables['params'])
  want = np.stack([equations(params, row) for row in np.float64(x)])
  atol = CLOSE * abs(want).max()
  np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def test_it_begins_by_forgetting_little():
  cell = lstm.Cell(lstm.Config(forget_bias=2.0), D)
  init = cell.init(jax.random.key(0), cell.init_state(B), draws.normal(B, L, D))
  want = np.repeat([0.0, 2.0, 0.0, 0.0], D)
  np.testing.assert_array_equal(init['params']['projection']['bias'], want)


@pytest.mark.parametrize(
  ('section', 'key', 'value', 'message'),
  (
    ('cell', 'state_width', -1, 'cell.state_width=-1: give 1 or more, or 0'),
    ('cell', 'dropout', 1.0, 'cell.dropout=1.0: give a number in'),
    ('mesh', 'sequence', 2, "mesh.sequence=2: model.cell='lstm' reads a row"),
    ('recurrence', 'impl', 'chunked', "recurrence.impl='chunked': model.cell="),
  ),
)
def test_what_cannot_be_is_refused(section, key, value, message):
  raw = config_lib.default('lstm')
  raw[section][key] = value
  with pytest.raises(errors.InputError, match=message):
    config_lib.parse(raw)
