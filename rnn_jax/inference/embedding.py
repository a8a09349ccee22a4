"""Features of texts by a model that writes text: means over their tokens.

    y = 1/L sum_t x_t,   x_t: what the head reads after token t

A text is read in chunks, between which its state and its sum are carried, so
that texts of any length need one program for each of LENGTHS. ROWS texts are
read together, those whose chunks have the same lengths; a text's numbers don't
depend on the others, as missing ones are filled in.

Shapes: tokens BxL, features BxD.
"""

import collections
import functools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import decode
from rnn_jax.inference import layers

LENGTHS = 64, 256  # tokens of a chunk; a text's last one may be shorter
ROWS = 8


def features(
  model: layers.LanguageModel, params: Any, texts: Sequence[np.ndarray]
) -> np.ndarray:
  """Returns the features of each text, NxD, float32.

  Args:
    model: in the form for inference.
    params: its parameters, which may be packed.
    texts: ids, at least one token each.
  """
  features_NxD = np.zeros((len(texts), model.config.width), np.float32)
  for lengths, numbers in _alike(texts):
    rows = [texts[n] for n in numbers]
    rows += rows[:1] * (ROWS - len(rows))
    state = jax.device_put(_init(model), jax.local_devices()[0])
    begin = 0
    for length in lengths:
      chunk = jax.device_put(_chunk(rows, begin, length))
      state = _read(model, params, state, *chunk)
      begin += length
    sum_BxD = np.asarray(state[1])
    counts = [len(texts[n]) for n in numbers]
    features_NxD[numbers] = sum_BxD[: len(numbers)] / np.c_[counts]
  return features_NxD


def _alike(texts) -> Iterator[tuple[tuple[int, ...], list[int]]]:
  """Yields (lengths of chunks, numbers of at most ROWS texts with them)."""
  by_lengths = collections.defaultdict(list)
  for n, ids in enumerate(texts):
    whole, rest = divmod(len(ids), LENGTHS[-1])
    last = [next(length for length in LENGTHS if length >= rest)] * bool(rest)
    by_lengths[(*[LENGTHS[-1]] * whole, *last)].append(n)
  for lengths, numbers in by_lengths.items():
    for begin in range(0, len(numbers), ROWS):
      yield lengths, numbers[begin : begin + ROWS]


def _chunk(rows, begin, length):
  """Returns (tokens_BxL, starts_BxL, counts_BxL); padding counts 0."""
  tokens, starts, counts = np.zeros((3, len(rows), length), np.int32)
  for row, ids in enumerate(rows):
    own = ids[begin : begin + length]
    tokens[row, : len(own)] = own
    starts[row, len(own) :] = 1  # padded positions stay within a table
    counts[row, : len(own)] = 1
  starts[:, 0] |= begin == 0
  return tokens, starts, counts


@functools.partial(jax.jit, static_argnums=0)
def _init(model):
  state = model.apply({}, ROWS, method='init_state')
  return state, jnp.zeros((ROWS, model.config.width))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _read(model, params, carry, tokens_BxL, starts_BxL, counts_BxL):
  state, sum_BxD = carry
  state, x_BxLxD = decode.apply(
    model, params, state, tokens_BxL, starts_BxL, method='features'
  )
  counted_BxLxD = jnp.where(counts_BxL[..., None] > 0, x_BxLxD, 0)
  return state, sum_BxD + counted_BxLxD.astype(jnp.float32).sum(1)
