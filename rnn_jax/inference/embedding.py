"""Features of texts by a model that writes text: means over their tokens.

    y = 1/L sum_t x_t,   x_t: what the head reads after token t

A text is read in chunks (chunks.py), between which its sum is carried too. ROWS
texts are read together, those whose chunks have the same lengths; a text's
numbers don't depend on the others, as missing ones are filled in.

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

from rnn_jax.inference import chunks
from rnn_jax.inference import decode
from rnn_jax.inference import layers

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
  for numbers in _alike(texts):
    rows = [(texts[n],) for n in numbers]
    rows += rows[:1] * (ROWS - len(rows))
    carry = jax.device_put(_init(model), jax.local_devices()[0])
    for chunk in chunks.split(rows):
      carry = _read(model, params, carry, jax.device_put(chunk))
    sum_BxD = np.asarray(carry[1])
    counts = [len(texts[n]) for n in numbers]
    features_NxD[numbers] = sum_BxD[: len(numbers)] / np.c_[counts]
  return features_NxD


def _alike(texts) -> Iterator[list[int]]:
  """Yields the numbers of at most ROWS texts whose chunks have one length."""
  by_lengths = collections.defaultdict(list)
  for n, ids in enumerate(texts):
    by_lengths[chunks.lengths(len(ids))].append(n)
  for numbers in by_lengths.values():
    for begin in range(0, len(numbers), ROWS):
      yield numbers[begin : begin + ROWS]


@functools.partial(jax.jit, static_argnums=0)
def _init(model):
  state = model.apply({}, ROWS, method='init_state')
  return state, jnp.zeros((ROWS, model.config.width))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _read(model, params, carry, chunk):
  (state, sum_BxD), (tokens_BxL,) = carry, chunk.arrays
  state, x_BxLxD = decode.apply(
    model, params, state, tokens_BxL, chunk.starts_BxL, method='features'
  )
  step_1xL = jnp.arange(tokens_BxL.shape[1])[None]
  counts_BxL = step_1xL < chunk.counts_B[:, None]
  counted_BxLxD = jnp.where(counts_BxL[..., None], x_BxLxD, 0)
  return state, sum_BxD + counted_BxLxD.astype(jnp.float32).sum(1)
