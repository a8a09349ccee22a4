"""Logits and probabilities of classes, pooled features, labels of tokens.

Texts are right-aligned in a batch, as prompts are in `inference.decode`; the
last step gives the class. See models/classifier.py and models/vision.py.

A text's numbers don't depend on the texts beside it: a batch has texts of one
padded length, which follows from a text's own, and always the same number of
rows, of which those that nobody asked for are copies. Padded lengths are powers
of two, so that texts up to L tokens need log2(L / 64) + 1 programs at most.
"""

import collections
import functools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import decode
from rnn_jax.models import classifier
from rnn_jax.models import language_model
from rnn_jax.models import packed_weights
from rnn_jax.models import vision

ROWS = 64  # of a batch, at most
TOKENS = 2**15  # of a batch of long texts, about

PyTree = Any
Model = classifier.Classifier | vision.Classifier


class Batch(NamedTuple):
  """Texts of one padded length.

  Attributes:
    length: the padded one.
    numbers: of the texts that were asked for.
    texts: these, and copies up to the number of rows, which follows from the
      padded length only.
  """

  length: int
  numbers: list[int]
  texts: list[np.ndarray]


def padded_length(count: int) -> int:
  """Returns the length to which a text of `count` ids is filled up.

  It is 1 more than a power of two, as the last step reads no padding.
  """
  return 1 + max(decode.PREFILL_MULTIPLE, 1 << max(count - 2, 0).bit_length())


def batches(
  texts: Sequence[np.ndarray], padded: Callable[[int], int] = padded_length
) -> Iterator[Batch]:
  """Yields batches that have all texts.

  Args:
    texts: ids.
    padded: from the number of ids to the padded length.
  """
  by_length = collections.defaultdict(list)
  for n, ids in enumerate(texts):
    by_length[padded(len(ids))].append(n)
  for length, numbers in sorted(by_length.items()):
    rows = max(1, min(ROWS, TOKENS // length))
    for begin in range(0, len(numbers), rows):
      chosen = numbers[begin : begin + rows]
      filled = [texts[n] for n in chosen]
      filled += filled[:1] * (rows - len(chosen))
      yield Batch(length, chosen, filled)


def logits(
  model: classifier.Classifier | vision.Classifier,
  params: PyTree,
  inputs: Sequence[np.ndarray],
) -> np.ndarray:
  """Returns the logits of the classes for each text or image, NxC, float32.

  Args:
    model: the classifier.
    params: its parameters, which may be packed in 8 bits.
    inputs: ids, framed by `data.text.examples.classification`; of images their
      pixels, HxWxC bytes.
  """
  if isinstance(model, vision.Classifier):
    program = functools.partial(pixel_logits, model, _placed(params))
    return _of_images(program, inputs, model.classes)
  program = functools.partial(text_logits, model, _placed(params))
  return _of_texts(program, inputs, model.classes)


def calibrated(logits_NxC: np.ndarray, temperature: float) -> np.ndarray:
  """Returns softmax(logits / temperature), NxC, float32.

  It is computed in float64. The order of a row's classes is that of its logits.
  """
  scaled_NxC = np.float64(logits_NxC) / temperature
  scaled_NxC -= scaled_NxC.max(-1, keepdims=True, initial=-np.inf)
  p_NxC = np.exp(scaled_NxC)
  return np.float32(p_NxC / p_NxC.sum(-1, keepdims=True))


def token_labels(
  model: language_model.LanguageModel,
  params: PyTree,
  texts: Sequence[np.ndarray],
  labels: int,
) -> list[np.ndarray]:
  """Returns the most likely label after each token of each text, int32.

  Args:
    model: what predicts a label after each token.
    params: its parameters, which may be packed in 8 bits.
    texts: ids, each beginning with a boundary.
    labels: how many of the model's outputs, the first ones, are labels.
  """
  program = functools.partial(_most_likely, model, labels, _placed(params))
  rows = _rows_of_texts(program, texts)
  return [row[-len(ids) :] for row, ids in zip(rows, texts, strict=True)]


def features(
  model: Model, params: PyTree, inputs: Sequence[np.ndarray]
) -> np.ndarray:
  """Returns the pooled features of each text or image, NxD or Nx3D, float32.

  They are what the head reads.
  """
  if isinstance(model, vision.Classifier):
    program = functools.partial(_pooled_pixels, model, _placed(params))
    return _of_images(program, inputs, 0)
  program = functools.partial(_pooled, model, _placed(params))
  return _of_texts(program, inputs, 0)


@functools.partial(jax.jit, static_argnums=0)
def text_logits(
  model: classifier.Classifier,
  params: PyTree,
  tokens_BxL: jax.Array,
  starts_BxL: jax.Array,
) -> jax.Array:
  """Returns logits_BxC of texts from `decode.pad`."""
  state = model.apply({}, tokens_BxL.shape[0], method='init_state')
  _, logits_BxLxC = model.apply(
    _variables(params), state, tokens_BxL, starts_BxL
  )
  return logits_BxLxC[:, -1].astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def pixel_logits(
  model: vision.Classifier, params: PyTree, image_BxHxWxC: jax.Array
) -> jax.Array:
  """Returns logits_BxC of images, bytes."""
  logits_BxC = model.apply(_variables(params), image_BxHxWxC)
  return logits_BxC.astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _most_likely(model, labels, params, tokens_BxL, starts_BxL):
  state = model.apply({}, tokens_BxL.shape[0], method='init_state')
  _, logits = model.apply(_variables(params), state, tokens_BxL, starts_BxL)
  return jnp.argmax(logits[..., :labels], -1)


@functools.partial(jax.jit, static_argnums=0)
def _pooled(model, params, tokens_BxL, starts_BxL):
  inner, pool, *_ = model.apply({}, tokens_BxL.shape[0], method='init_state')
  _, _, y_BxLxD = model.apply(
    _variables(params), (inner, pool), tokens_BxL, starts_BxL, method='pooled'
  )
  return y_BxLxD[:, -1]


@functools.partial(jax.jit, static_argnums=0)
def _pooled_pixels(model, params, image_BxHxWxC):
  return model.apply(_variables(params), image_BxHxWxC, method='pooled')


def _variables(params):
  return {'params': packed_weights.unpack(params)}


def _placed(params):
  return jax.device_put(params, jax.local_devices()[0])


def _of_texts(
  program: Callable[..., jax.Array], texts: Sequence[np.ndarray], width: int
) -> np.ndarray:
  """Returns the program's row of each text; `width` if there are none."""
  rows = _rows_of_texts(program, texts)
  return np.stack(rows) if rows else np.zeros((0, width), np.float32)


def _rows_of_texts(
  program: Callable[..., jax.Array], texts: Sequence[np.ndarray]
) -> list[np.ndarray]:
  """Returns the program's row of each text."""
  rows: list[Any] = [None] * len(texts)
  for batch in batches(texts):
    padded = jax.device_put(decode.pad(batch.texts, batch.length))
    result = jax.device_get(program(*padded))
    for n, row in zip(batch.numbers, result, strict=False):
      rows[n] = row
  return rows


def _of_images(
  program: Callable[..., jax.Array], images: Sequence[np.ndarray], width: int
) -> np.ndarray:
  rows = []
  for begin in range(0, len(images), ROWS):
    chosen = images[begin : begin + ROWS]
    image_BxHxWxC = np.zeros((ROWS, *chosen[0].shape), np.uint8)
    image_BxHxWxC[: len(chosen)] = chosen
    result = jax.device_get(program(jax.device_put(image_BxHxWxC)))
    rows.append(result[: len(chosen)])
  return np.concatenate(rows) if rows else np.zeros((0, width), np.float32)
