"""The Dragon Hatchling's layer in float64 NumPy, from its equations."""

from typing import NamedTuple

import jax
import numpy as np


class Options(NamedTuple):
  """As of cells.bdh.Config."""

  heads: int
  rotary: float
  sees: str
  weights: str = 'linear'


def standard(x):
  """LayerNorm without scale and bias."""
  centred = x - x.mean(-1, keepdims=True)
  return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def turned(s_LxN, base):
  """The pair (2m, 2m+1) as a complex number, times e^(i t base^(-2m/N))."""
  length, neurons = s_LxN.shape
  rates = base ** (-np.arange(0, neurons, 2) / neurons)
  turns = np.exp(1j * np.arange(length)[:, None] * rates)
  pairs = (s_LxN[:, ::2] + 1j * s_LxN[:, 1::2]) * turns
  return np.stack([pairs.real, pairs.imag], -1).reshape(s_LxN.shape)


def layer(params, x_BxLxD, options):
  """Each row's output, each head by itself."""
  params = jax.tree.map(np.float64, params)
  gates = params['gate']['kernel']
  outputs = []
  for x_LxD in np.float64(x_BxLxD):
    parts = []
    columns = np.split(params['encoder']['kernel'], options.heads, 1)
    for own, gate in zip(columns, gates, strict=True):
      s = np.maximum(x_LxD @ own, 0)
      r = turned(s, options.rotary)
      scores = r @ r.T
      if options.sees == 'past':
        scores = np.tril(scores, -1)
      if options.weights == 'softmax':
        scores = np.exp(scores / s.shape[-1] ** 0.5)
        scores /= scores.sum(-1, keepdims=True)
      u = np.maximum(standard(scores @ x_LxD) @ gate, 0)
      parts.append(s * u)
    outputs.append(np.concatenate(parts, -1) @ params['output']['kernel'])
  return np.stack(outputs)
