"""Cells with a vector state, step by step as their docstrings have it.

The short convolution has one of its inputs.
"""

import numpy as np

from tests.cells.equations import common

dense = common.dense
sigmoid = common.sigmoid


def _recurrent(params, x, gates, split):
  """h of each step from `split`: its raw gates, h and c -> h, c, gates."""
  U = params['recurrent']['kernel']
  h = c = np.zeros(len(U))
  out, seen = [], {name: [] for name in gates}
  for raw in dense(params['projection'], x):
    h, c, values = split(raw, U, h, c)
    out.append(h)
    for name, gate in zip(gates, values, strict=True):
      seen[name].append(gate)
  return np.stack(out), seen


def min_lstm(params, x, c):
  def step(raw, U, h, c):
    f, g, o = np.split(raw + h @ U, 3)
    f, o = sigmoid(f), sigmoid(o)
    c = f * c + (1 - f) * np.tanh(g)
    return o * np.tanh(c), c, (f, 1 - f, o)

  return _recurrent(params, x, ('keep', 'write', 'read'), step)


def lstm(params, x, c):
  def step(raw, U, h, c):
    i, f, g, o = np.split(raw + h @ U, 4)
    i, f, o = map(sigmoid, (i, f, o))
    c = f * c + i * np.tanh(g)
    return o * np.tanh(c), c, (f, i, o)

  return _recurrent(params, x, ('keep', 'write', 'read'), step)


def gru(params, x, c):
  def step(raw, U, h, _):
    S = len(h)
    r, z = np.split(sigmoid(raw[: 2 * S] + h @ U[:, : 2 * S]), 2)
    if c.reset == 'after':
      seen = r * (h @ U[:, 2 * S :] + params['candidate_bias'])
    else:
      seen = (r * h) @ params['recurrent_candidate']['kernel']
    h = (1 - z) * np.tanh(raw[2 * S :] + seen) + z * h
    return h, None, (z, r)

  return _recurrent(params, x, ('keep', 'read'), step)


def slstm(params, x, c):
  """c / n is a mean of all past z, whose weights are a softmax."""
  R, heads = params['recurrent']['kernel'], c.heads
  h, past, logs, out = np.zeros(heads * R.shape[1]), [], [], []
  gates = {'keep': [], 'write': [], 'read': []}
  for raw in dense(params['projection'], x):
    own = np.einsum('hk,hkj->hj', h.reshape(heads, -1), R)
    i, f, z, o = (
      a + own[:, n * len(own[0]) // 4 : (n + 1) * len(own[0]) // 4].ravel()
      for n, a in enumerate(np.split(raw, 4))
    )
    logf = f if c.forget_gate == 'exponential' else -np.logaddexp(0, -f)
    logs = [log + logf for log in logs] + [i]
    past.append(np.tanh(z))
    weights = np.exp(np.array(logs) - np.max(logs, 0))
    weights /= weights.sum(0)
    h = sigmoid(o) * np.sum(weights * past, 0)
    out.append(h)
    for gate, value in zip(
      gates, (np.exp(np.minimum(logf, 0)), weights[-1], sigmoid(o)), strict=True
    ):
      gates[gate].append(value)
  h = np.stack(out)
  if c.norm == 'layer':
    each = h.reshape(len(h), heads, -1)
    each = each - each.mean(-1, keepdims=True)
    each = each / np.sqrt((each**2).mean(-1, keepdims=True) + 1e-5)
    h = (each * params['norm']['scale']).reshape(h.shape)
  return h, gates


def rhn(params, x, c):
  """Layer by layer of a step."""
  read = dense(params['projection'], x)
  s, out = np.zeros(read.shape[1] // 2), []
  gates = {f'take_{n + 1}': [] for n in range(c.depth)} | {'keep': []}
  for of_input in read:
    kept = 1
    for n in range(c.depth):
      own = params[f'recurrents_{n}']
      raw = s @ own['kernel'] + (own['bias'] if n else of_input)
      new, t = np.split(raw, 2)
      t = sigmoid(t)
      s = t * np.tanh(new) + (1 - t) * s
      gates[f'take_{n + 1}'].append(t)
      kept = kept * (1 - t)
    gates['keep'].append(kept)
    out.append(s)
  return np.stack(out), gates


def qrnn(params, x, c):
  W, b = params['projection']['kernel'], params['projection']['bias']
  W = W.reshape(c.taps, x.shape[1], -1)
  names = {'f': 'keep', 'i': 'write', 'o': 'read'}
  letters = {'f': 'zf', 'fo': 'zfo', 'ifo': 'zfoi'}[c.pooling]
  h, out = np.zeros(len(b) // len(letters)), []
  seen = {'write': []} | {names[name]: [] for name in letters[1:]}
  for t in range(len(x)):
    raw = b + sum(x[t - d] @ W[d] for d in range(c.taps) if d <= t)
    z, *others = np.split(raw, len(letters))
    gates = dict(zip(letters[1:], map(sigmoid, others), strict=True))
    gates.setdefault('i', 1 - gates['f'])
    h = gates['f'] * h + gates['i'] * np.tanh(z)
    out.append(gates.get('o', 1.0) * h)
    for name, gate in gates.items():
      seen[names[name]].append(gate)
  return np.stack(out), seen


def short_convolution(params, x, c):
  u = dense(params['projection'], x).reshape(len(x), -1, 3)
  before, after, x = np.moveaxis(u, 2, 0)
  y = common.convolve(before * x, params['taps'])
  return after * (y + params.get('taps_bias', 0)), None


def _output(c, D):
  """(S, the parameters of the output)."""
  S = c.state_width or D
  return S, (S * D + D) * (S != D)


def _size(gates):
  def size(D, c):
    S, output = _output(c, D)
    return gates * S * (D + S + 1) + output

  return size


def _gru(D, c):
  return _size(3)(D, c) + (c.state_width or D) * (c.reset == 'after')


def _slstm(D, c):
  S, output = _output(c, D)
  return 4 * S * (D + S // c.heads + 1) + S * (c.norm == 'layer') + output


def _rhn(D, c):
  S, output = _output(c, D)
  return 2 * S * (D + c.depth * (S + 1)) + output


def _qrnn(D, c):
  S, output = _output(c, D)
  gates = {'f': 2, 'fo': 3, 'ifo': 4}[c.pooling]
  return gates * S * (c.taps * D + 1) + output


def _short_convolution(D, c):
  S = c.inner_width or D
  return (4 * D + c.convolution) * S + c.biases * (4 * S + D)


# The parameters of each, as documented.
SIZES = {
  'min_lstm': _size(3),  # three quarters of an LSTM's
  'lstm': _size(4),
  'gru': _gru,
  'slstm': _slstm,
  'rhn': _rhn,
  'qrnn': _qrnn,
  'short_convolution': _short_convolution,
}
