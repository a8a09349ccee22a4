"""Cells with vector states against their equations, step by step."""

import functools

import numpy as np
import pytest

from tests.cells import equations

D = equations.D
QRNN = {'f': 'zf', 'fo': 'zfo', 'ifo': 'zfoi'}  # gates of each pooling


def min_lstm(params, x):
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


def lstm(params, x):
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


def gru(reset, params, x):
  """The module's docstring, gate by gate."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  U = params['recurrent']['kernel']
  S = U.shape[0]
  h, out, gates = np.zeros(S), [], {'keep': [], 'read': []}
  for x_t in x:
    read = np.split(x_t @ W + b, 3)
    r, z = (
      equations.sigmoid(read[n] + h @ U[:, n * S : (n + 1) * S])
      for n in range(2)
    )
    if reset == 'after':
      seen = r * (h @ U[:, 2 * S :] + params['candidate_bias'])
    else:
      seen = (r * h) @ params['recurrent_candidate']['kernel']
    h = (1 - z) * np.tanh(read[2] + seen) + z * h
    out.append(h)
    gates['keep'].append(z)
    gates['read'].append(r)
  return np.stack(out), gates


def rhn(params, x):
  """The module's docstring, layer by layer of a step."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  depth = sum(name.startswith('recurrents_') for name in params)
  s, out = np.zeros(W.shape[1] // 2), []
  gates = {f'take_{n + 1}': [] for n in range(depth)} | {'keep': []}
  for x_t in x:
    kept = 1
    for n in range(depth):
      own = params[f'recurrents_{n}']
      read = s @ own['kernel'] + (own['bias'] if n else x_t @ W + b)
      c, t = np.split(read, 2)
      t = equations.sigmoid(t)
      s = t * np.tanh(c) + (1 - t) * s
      gates[f'take_{n + 1}'].append(t)
      kept = kept * (1 - t)
    gates['keep'].append(kept)
    out.append(s)
  return np.stack(out), gates


def qrnn(pooling, taps, params, x):
  """The module's docstring, gate by gate."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  W = W.reshape(taps, D, -1)
  h, out = np.zeros(len(b) // len(QRNN[pooling])), []
  names = {'f': 'keep', 'i': 'write', 'o': 'read'}
  by_name = {'write': []} | {names[name]: [] for name in QRNN[pooling][1:]}
  for t in range(len(x)):
    read = b + sum(x[t - d] @ W[d] for d in range(taps) if d <= t)
    parts = np.split(read, len(QRNN[pooling]))
    z, *others = parts
    gates = dict(
      zip(QRNN[pooling][1:], map(equations.sigmoid, others), strict=True)
    )
    gates.setdefault('i', 1 - gates['f'])
    h = gates['f'] * h + gates['i'] * np.tanh(z)
    out.append(gates.get('o', 1.0) * h)
    for name, gate in gates.items():
      by_name[names[name]].append(gate)
  return np.stack(out), by_name


@pytest.mark.parametrize(
  ('equation', 'first', 'options'),
  (
    (min_lstm, (), {'state_width': 3}),
    (lstm, (), {'state_width': 0}),
    (lstm, (), {'state_width': 3}),
    (gru, ('after',), {'state_width': 3, 'reset': 'after'}),
    (gru, ('before',), {'state_width': 0, 'reset': 'before'}),
    (rhn, (), {'depth': 1, 'state_width': 0}),
    (rhn, (), {'depth': 3, 'state_width': 4}),
    (qrnn, ('f', 3), {'pooling': 'f', 'taps': 3, 'state_width': 0}),
    (qrnn, ('fo', 2), {'pooling': 'fo', 'taps': 2, 'state_width': 4}),
    (qrnn, ('ifo', 1), {'pooling': 'ifo', 'taps': 1, 'state_width': 0}),
  ),
)
def test_a_cell_equals_its_equations(equation, first, options):
  by_hand = functools.partial(equation, *first)
  equations.compare(equation.__name__, options, by_hand)


@pytest.mark.parametrize(
  ('name', 'options', 'biases'),
  (
    ('min_lstm', {'forget_bias': 2.0}, (2, 0, 0)),
    ('gru', {'keep_bias': 2.0}, (0, 2, 0)),
    ('qrnn', {'forget_bias': 2.0, 'pooling': 'ifo'}, (0, 2, 0, 0)),
  ),
)
def test_a_cell_begins_with_a_high_gate(name, options, biases):
  want = np.repeat(np.float64(biases), D)
  cell = equations.made(name, **options)
  np.testing.assert_array_equal(cell.init_biases(None, want.shape), want)


def test_an_lstm_has_its_high_forget_gate():
  params = equations.initial('lstm', forget_bias=2.0)
  want = np.repeat([0.0, 2.0, 0.0, 0.0], D)
  np.testing.assert_array_equal(params['projection']['bias'], want)


def test_each_layer_of_an_rhn_begins_by_carrying():
  params = equations.initial('rhn', depth=2, transform_bias=-3.0)
  want = np.repeat([0.0, -3.0], D)
  for name in ('projection', 'recurrents_1'):
    np.testing.assert_array_equal(params[name]['bias'], want)
  assert 'bias' not in params['recurrents_0']


@pytest.mark.parametrize(
  ('name', 'options', 'size'),
  (
    ('min_lstm', {}, 3 * D * (2 * D + 1)),  # three quarters of an LSTM's
    ('lstm', {}, 4 * D * (2 * D + 1)),
    ('lstm', {'state_width': 3}, 12 * (D + 4) + 4 * D),
    ('gru', {}, 3 * D * (2 * D + 1) + D),
    ('gru', {'reset': 'before'}, 3 * D * (2 * D + 1)),
    ('rhn', {'depth': 1}, 2 * D * (D + D + 1)),
    ('rhn', {'depth': 4}, 2 * D * (D + 4 * D + 4)),
    *(
      ('qrnn', {'taps': 3, 'pooling': pooling}, len(gates) * D * (3 * D + 1))
      for pooling, gates in QRNN.items()
    ),
  ),
)
def test_a_cell_has_as_many_parameters_as_documented(name, options, size):
  assert equations.count(name, **options) == size
