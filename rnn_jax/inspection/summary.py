"""From sums over batches (activations.py) to rows of tables."""

import math
from collections.abc import Sequence

import numpy as np

from rnn_jax.inspection import activations

QUANTILES = {'low': 0.05, 'median': 0.5, 'high': 0.95}
LISTED = 16  # dead units that are told by number

Batches = Sequence[Sequence[activations.Layer]]  # [batch][layer], on the host


def gates(batches: Batches) -> list[dict]:
  """Returns a row a layer and gate.

  'layer', 'gate', 'mean', 'low', 'median', 'high' (5 %, 50 % and 95 %
  quantile), 'above' and 'below' (shares), 'bins': see `bins`.
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    for name in seen[0].gates:
      rows.append({'layer': n, 'gate': name, **_gate(seen, name)})
  return rows


def _gate(seen, name):
  found = [layer.gates[name] for layer in seen]
  count, total, above, below = (
    sum(float(gate[i]) for gate in found) for i in range(4)
  )
  counts = sum(np.asarray(gate.counts, np.int64) for gate in found)
  count = max(count, 1)
  return {
    'mean': total / count,
    **{key: _quantile(counts, q) for key, q in QUANTILES.items()},
    'above': above / count,
    'below': below / count,
    'bins': counts,
  }


def edges() -> np.ndarray:
  """Returns the gate values between which the bins lie, BINS + 1 of them."""
  ends = activations.LOGIT, activations.BINS
  logits = np.linspace(-ends[0], ends[0], ends[1] + 1)
  return 1 / (1 + np.exp(-logits))


def _quantile(counts, q):
  reached = np.concatenate([[0], np.cumsum(counts)])
  if not reached[-1]:
    return None
  # Straight between the edges of a bin; empty bins hold no quantile.
  full = np.flatnonzero(counts)
  bin_ = full[np.searchsorted(reached[full + 1], q * reached[-1])]
  within = (q * reached[-1] - reached[bin_]) / counts[bin_]
  low, high = edges()[bin_ : bin_ + 2]
  return float(low + (high - low) * within)


def half_lives(batches: Batches) -> list[dict]:
  """Returns a row a layer that tells its log-decays, over its channels.

  'layer', 'channels', 'low', 'median', 'high': quantiles of the half-life in
  steps; infinite where nothing decays.
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    if seen[0].loga is not None:
      tokens = sum(float(np.sum(layer.rows)) for layer in seen)
      loga = sum(np.asarray(layer.loga, float) for layer in seen)
      with np.errstate(divide='ignore'):
        steps = math.log(0.5) * max(tokens, 1) / np.minimum(loga, -0.0)
      # No quantile lies between two channels: one of them may be infinite.
      found = {
        key: float(np.quantile(steps, q, method='inverted_cdf'))
        for key, q in QUANTILES.items()
      }
      rows.append({'layer': n, 'channels': len(steps), **found})
  return rows


def states(batches: Batches) -> list[dict]:
  """Returns a row a layer and part of its state.

  'layer', 'state', 'first', 'middle', 'last', 'largest' and 'norms': the norm
  behind each step of a row, a root mean square over rows.
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
      found = {
        'first': norms[0],
        'middle': norms[len(norms) // 2],
        'last': norms[-1],
        'largest': norms.max(),
      }
      found = {key: float(x) for key, x in found.items()}
      rows.append({'layer': n, 'state': name, **found, 'norms': norms.tolist()})
  return rows


def _over_time(vectors):
  total = np.zeros(max(map(len, vectors)))
  for vector in vectors:
    total[: len(vector)] += vector
  return total


def units(batches: Batches, config) -> list[dict]:
  """Returns a row a layer and kind of hidden units it has.

  'layer', 'of' (activations.MLP or CELL), 'units', 'dead' (how many were at
  rest at all tokens), 'which' (the first of them) and 'at_rest' (the share of
  all activations). `config` is the Model config.
  """
  rows = []
  for n, seen in enumerate(_by_layer(batches)):
    tokens = sum(float(np.sum(layer.rows)) for layer in seen)
    for of in seen[0].units:
      limit = activations.at_rest_below(config, of)
      found = [layer.units[of] for layer in seen]
      rows.append({'layer': n, 'of': of, **_units(found, tokens, limit)})
  return rows


def _units(found, tokens, limit):
  largest = np.max([units.largest for units in found], 0)
  dead = np.flatnonzero(largest <= limit)
  at_rest = sum(float(units.silent) for units in found)
  return {
    'units': len(largest),
    'dead': len(dead),
    'at_rest': at_rest / max(tokens * len(largest), 1),
    'which': dead[:LISTED].tolist(),
  }


def _by_layer(batches):
  return [*zip(*batches, strict=True)]
