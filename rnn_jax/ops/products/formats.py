"""Matrices in fewer bits: how their numbers are rounded.

    float32      each number as it is
    bfloat16     each number rounded to 8 bits of mantissa
    int8         w ~ s n, n from -127 to 127, a scale s for each column
    int8_blocks  the same, s for each 32 numbers of a column, as GGUF's Q8_0
    int4         w ~ s n, n from -8 to 7, s for each 32 numbers, as GGUF's Q4_0

Bits of a number, with its share of a scale: 32, 16, 8, 8.5 and 4.5. The scale
of a block is a float16. In 'int4' it is the best of CANDIDATES: with the
numbers that it gives, the squared error of the block is the lowest. (Q4_0 takes
the scale that maps the largest number to -8.)

Shapes: w KxF; numbers KxF; scales 1xF in 'int8', else ceil(K / 32)xF.
Source: github.com/ggml-org/ggml, ggml-quants.c, 2026, for the layouts.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

BLOCK = 32  # numbers of a column that share a scale
FORMATS = ('float32', 'bfloat16', 'int8', 'int8_blocks', 'int4')
BLOCKED = FORMATS[3:]
RANGES = {'int8': (-127, 127), 'int8_blocks': (-127, 127), 'int4': (-8, 7)}
CANDIDATES = 16  # of a block's scale in 4 bits: Q4_0's by 7/8 to 5/4, also by 1


class Rounded(NamedTuple):
  """A matrix in one of FORMATS; `scales` are None of floats."""

  numbers_KxF: jax.Array
  scales: jax.Array | None = None


def quantize(w_KxF: jax.Array, format: str) -> Rounded:
  """Rounds a float32 matrix; see the module's docstring.

  A matrix that isn't finite gives scales that aren't.

  Raises:
    ValueError: `format` isn't one of FORMATS.
  """
  check(format)
  w = w_KxF.astype(jnp.float32)
  if format in ('float32', 'bfloat16'):
    return Rounded(w.astype(format))
  if format in BLOCKED:
    blocks = _blocks(w)
    largest_NxF = _largest(_rows(blocks))
  else:
    blocks = w[None]
    size_KxF = jnp.where(jnp.isnan(w), jnp.inf, jnp.abs(w))
    largest_NxF = jnp.max(size_KxF, 0, keepdims=True)
  if format == 'int4':
    scales = _best(_rows(blocks), largest_NxF)
  else:
    scales = jnp.abs(largest_NxF) / RANGES[format][1]
    scales = _up(scales) if format in BLOCKED else scales
  numbers = _numbers(blocks, scales, format)
  return Rounded(numbers.reshape(-1, w.shape[1])[: w.shape[0]], scales)


def dequantize(rounded: Rounded) -> jax.Array:
  """Returns a matrix as float32, KxF."""
  numbers = rounded.numbers_KxF.astype(jnp.float32)
  if rounded.scales is None:
    return numbers
  scales = rounded.scales.astype(jnp.float32)
  if scales.shape[0] == 1 and numbers.shape[0] > BLOCK:
    return scales * numbers
  return jnp.repeat(scales, BLOCK, 0)[: numbers.shape[0]] * numbers


def check(format: str) -> None:
  """Checks the name of a format.

  Raises:
    ValueError: it isn't one of FORMATS.
  """
  if format not in FORMATS:
    raise ValueError(f'format={format!r}: choose one of {FORMATS}')


def _blocks(w):
  """Returns NxBLOCKxF, filled up with zeros."""
  w = jnp.pad(w, ((0, -w.shape[0] % BLOCK), (0, 0)))
  return w.reshape(-1, BLOCK, w.shape[1])


def _rows(blocks):
  """Returns the BLOCK rows NxF of blocks.

  XLA makes one fast loop of sums and maxima over such rows, and a slow one of
  those over the axis.
  """
  return [blocks[:, n] for n in range(BLOCK)]


def _largest(rows):
  """Returns the number of the largest size of each block, NxF.

  It is infinite where one isn't finite.
  """

  def larger(a, b):
    return jnp.where(jnp.abs(b) > jnp.abs(a), b, a)

  finite = functools.reduce(jnp.logical_and, map(jnp.isfinite, rows))
  return jnp.where(finite, functools.reduce(larger, rows), jnp.inf)


def _up(scales):
  """Returns float16 scales that aren't smaller, so that nothing is cut off."""
  near = scales.astype(jnp.float16)
  larger = jax.lax.nextafter(near, jnp.float16(jnp.inf))
  return jnp.where(near.astype(jnp.float32) < scales, larger, near)


def _numbers(blocks, scales, format):
  scales = scales.astype(jnp.float32)[:, None]
  numbers = jnp.clip(jnp.round(blocks * _inverse(scales)), *RANGES[format])
  return numbers.astype(jnp.int8)


def _inverse(scales):
  return jnp.where(scales == 0, 0, 1 / scales)


def _best(rows, largest_NxF):
  """Returns the scales NxF of blocks in 4 bits."""

  def better(n, best):
    scales, error = best
    share = 7 / 8 + 3 / 8 * n / (CANDIDATES - 1)
    candidate = (largest_NxF / (-8 * share)).astype(jnp.float16)
    scale = candidate.astype(jnp.float32)
    inverse, own = _inverse(scale), jnp.zeros_like(error)
    for w_NxF in rows:
      number = jnp.clip(jnp.round(w_NxF * inverse), *RANGES['int4'])
      own += (scale * number - w_NxF) ** 2
    return jnp.where(own < error, candidate, scales), jnp.minimum(own, error)

  begin = (largest_NxF / -8).astype(jnp.float16)
  infinite = jnp.full(largest_NxF.shape, jnp.inf)
  return jax.lax.fori_loop(0, CANDIDATES, better, (begin, infinite))[0]
