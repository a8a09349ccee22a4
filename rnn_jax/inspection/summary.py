"""Turns sums over batches (activations.py) into rows of tables."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.inspection import activations

QUANTILES = {'low': 0.05, 'median': 0.5, 'high': 0.95}
LISTED = 16  # dead units that are listed

Batches = Sequence[Sequence[activations.Layer]]  # [batch][layer], on the host
Rows = list[dict[str, Any]]


def gates(batches: Batches) -> Rows:
  """Returns a row per layer and gate.

  'layer', 'gate', 'mean', 'low', 'median', 'high' (5 %, 50 % and 95 %
  quantile), 'above' and 'below' (shares), 'bins' (counts between `edges`).
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    for name in seen[0].gates:
      rows.append({'layer': n, 'gate': name, **_gate(seen, name)})
  return rows


def _gate(seen, name):
  gates = [layer.gates[name] for layer in seen]
  count, total, above, below = (
    sum(float(gate[i]) for gate in gates) for i in range(4)
  )
  counts = sum(np.asarray(gate.counts, np.int64) for gate in gates)
  count = max(count, 1)
  return {
    'mean': total / count,
    **{key: _quantile(counts, q) for key, q in QUANTILES.items()},
    'above': above / count,
    'below': below / count,
    'bins': counts,
  }


def edges() -> np.ndarray:
  """Returns the BINS + 1 gate values that separate the bins."""
  ends = activations.LOGIT, activations.BINS
  logits = np.linspace(-ends[0], ends[0], ends[1] + 1)
  return 1 / (1 + np.exp(-logits))


def _quantile(counts, q):
  reached = np.concatenate([[0], np.cumsum(counts)])
  if not reached[-1]:
    return None
  # Linear between the edges of a bin; empty bins hold no quantile.
  full = np.flatnonzero(counts)
  bin_ = full[np.searchsorted(reached[full + 1], q * reached[-1])]
  within = (q * reached[-1] - reached[bin_]) / counts[bin_]
  low, high = edges()[bin_ : bin_ + 2]
  return float(low + (high - low) * within)


def half_lives(batches: Batches) -> Rows:
  """Returns a row, over its channels, per layer that reports log-decays.

  'layer', 'channels', 'low', 'median', 'high': quantiles of the half-life in
  steps; infinite if nothing decays.
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    if seen[0].loga is not None:
      tokens = sum(float(np.sum(layer.rows)) for layer in seen)
      loga = sum(np.asarray(layer.loga, float) for layer in seen)
      with np.errstate(divide='ignore'):
        steps = math.log(0.5) * max(tokens, 1) / np.minimum(loga, -0.0)
      # No quantile lies between two channels: one of them may be infinite.
      quantiles = {
        key: float(np.quantile(steps, q, method='inverted_cdf'))
        for key, q in QUANTILES.items()
      }
      rows.append({'layer': n, 'channels': len(steps), **quantiles})
  return rows


def states(batches: Batches) -> Rows:
  """Returns a row per layer and part of its state.

  'layer', 'state', 'first', 'middle', 'last', 'largest' and 'norms': the norm
  after each step of a row, a root mean square over rows.
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    count = _over_time([layer.rows for layer in seen])
    reached = count > 0
    for name in seen[0].squares:
      total = _over_time([layer.squares[name] for layer in seen])
      norms = np.sqrt(total[reached] / count[reached])
      if not len(norms):
        continue
      norms = norms.tolist()
      row = {
        'first': norms[0],
        'middle': norms[len(norms) // 2],
        'last': norms[-1],
        'largest': max(norms),
        'norms': norms,
      }
      rows.append({'layer': n, 'state': name, **row})
  return rows


def _over_time(vectors):
  total = np.zeros(max(map(len, vectors)))
  for vector in vectors:
    total[: len(vector)] += vector
  return total


def units(batches: Batches, config: config_lib.Model) -> Rows:
  """Returns a row per layer and kind of hidden units.

  'layer', 'of' (activations.MLP or CELL), 'units', 'dead' (how many were at
  rest at all tokens), 'which' (the first of them) and 'at_rest' (the share of
  all activations). `config` is the Model config.
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    tokens = sum(float(np.sum(layer.rows)) for layer in seen)
    for of in seen[0].units:
      limit = activations.at_rest_below(config, of)
      units = [layer.units[of] for layer in seen]
      rows.append({'layer': n, 'of': of, **_units(units, tokens, limit)})
  return rows


def _units(units, tokens, limit):
  largest = np.max([one.largest for one in units], 0)
  dead = np.flatnonzero(largest <= limit)
  at_rest = sum(float(one.silent) for one in units)
  return {
    'units': len(largest),
    'dead': len(dead),
    'at_rest': at_rest / max(tokens * len(largest), 1),
    'which': dead[:LISTED].tolist(),
  }


def loads(batches: Batches) -> Rows:
  """Returns a row per layer with experts.

  'layer', 'experts', 'least' and 'most' (tokens of the two extremes, by the
  even share) and 'idle' (how many had no token).
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    if seen[0].load is None:
      continue
    load = np.sum([layer.load for layer in seen], 0)
    shares = load * len(load) / max(load.sum(), 1)
    rows.append(
      {
        'layer': n,
        'experts': len(load),
        'least': float(shares.min()),
        'most': float(shares.max()),
        'idle': int(np.sum(load == 0)),
      }
    )
  return rows


def _by_layer(batches):
  return [*zip(*batches, strict=True)]
