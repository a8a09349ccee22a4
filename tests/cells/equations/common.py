"""What the equations of several cells have in common, in float64."""

import numpy as np


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def silu(x):
  return x * sigmoid(x)


def softplus(x):
  return np.logaddexp(x, 0)


def rms_norm(x):
  return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def dense(params, x):
  return x @ params['kernel'] + params.get('bias', 0.0)


def convolve(x_LxE, taps):
  """A causal convolution of each channel; the first tap is of the newest."""
  out = np.zeros_like(x_LxE)
  for t in range(len(x_LxE)):
    for d, tap in enumerate(taps[: t + 1]):
      out[t] += tap * x_LxE[t - d]
  return out


def rotated(x, t, base):
  """Pairs of the last axis, half of it apart, turned by their angles at t."""
  half = x.shape[-1] // 2
  turns = np.exp(1j * t * base ** (-np.arange(half) / half))
  pairs = (x[..., :half] + 1j * x[..., half:]) * turns
  return np.concatenate([pairs.real, pairs.imag], -1)


def joined(x):
  """The heads of each step in one row."""
  return x.reshape(len(x), -1)


def level_weights(lambdas, t, length):
  """What log-linear attention multiplies each step of a row by, at t."""
  last = len(lambdas) - 1
  return np.array(
    [
      lambdas[min((t ^ s).bit_length(), last)] if s <= t else 0.0
      for s in range(length)
    ]
  )
