"""Scores texts: a trained model's log-probability of every token.

    scorer = Scorer(bundle.read('runs/demo', 'best'))
    for score in scorer.score(['def main():', 'dfe niam)(:'], top_k=3):
      print(score.loss, score.bits_per_byte)

A text is read in chunks, and the recurrent state is carried from one to the
next, so that the device holds one chunk of a text of any length. Chunks begin
every LENGTHS[-1] tokens and texts are read one at a time: a score doesn't
depend on the other texts, to the last bit. Each of LENGTHS is one program.
"""

import functools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import activity
from rnn_jax import bounds
from rnn_jax import errors
from rnn_jax.inference import framing
from rnn_jax.inference import layers
from rnn_jax.inference import surprise
from rnn_jax.models import int8_weights
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib

LENGTHS = 64, 256  # tokens of a chunk; a text's last one may be shorter
TOKEN_BYTES = 32  # of a token on the host: its ids, values and place
ALTERNATIVE_BYTES = 8


class _Chunk(NamedTuple):
  read_BxL: Any
  targets_BxL: Any
  starts_BxL: Any


class Scorer:
  """A model that is ready to score. Its programs are compiled once."""

  def __init__(self, bundle: bundle_lib.Bundle):
    """Takes a model, whose parameters may be packed in 8 bits.

    Raises:
      InputError: it predicts classes, or doesn't fit on this machine.
    """
    task = bundle.config.task
    if task.classifies or not task.writes_text:
      errors.refuse(
        'task.name',
        task.name,
        'the model predicts classes, not the tokens of a text: use predict',
      )
    bounds.check_model(bundle.config, bundle.params, 'parameters')
    model = language_model.from_config(bundle.config, bundle.tokenizer.size)
    self._bundle = bundle
    self._model = layers.for_inference(model)
    self._device = jax.local_devices()[0]
    params = jax.device_put(bundle.params, self._device)
    self._params = jax.jit(layers.unstack)(params)

  @property
  def longest(self) -> int:
    """How many tokens learned positions allow to read; 0: any number."""
    config = self._model.config
    return config.max_positions if config.positions == 'learned' else 0

  def score(
    self, texts: Sequence[str | bytes], top_k: int = 0
  ) -> list[surprise.Score]:
    """Returns the score of each text, in their order.

    Args:
      texts: documents, framed as in training (inference/framing.py): the first
        token follows a boundary, and the boundary that ends a text is predicted
        too. '' has only that one.
      top_k: how many of the likeliest tokens to return for each token.

    Raises:
      InputError: `top_k` is out of range, a text isn't UTF-8, the task predicts
        nothing of it, or it is longer than learned positions allow or memory.
    """
    size = self._bundle.tokenizer.size
    if not 0 <= top_k <= size:
      errors.refuse('top_k', top_k, f'give 0 to {size}, all of the vocabulary')
    if isinstance(texts, (str, bytes)):
      errors.refuse('texts', texts[:40], 'give a list of texts')
    return [self._score(text, top_k) for text in texts]

  def logits(self, text: str | bytes) -> np.ndarray:
    """Returns the logits LxV of a text, float32.

    Row 0 predicts the first token of `score`, the last row the boundary.

    Raises:
      InputError: as `score`.
    """
    return self._rows(text, '__call__', self._bundle.tokenizer.size)

  def features(self, text: str | bytes) -> np.ndarray:
    """Returns the inputs LxD of the head, float32; rows as in `logits`.

    Raises:
      InputError: as `score`.
    """
    return self._rows(text, 'features', self._model.config.width)

  def hidden(self, text: str | bytes) -> np.ndarray:
    """Returns the outputs LxD of the last block, float32; rows as in `logits`.

    `features` are these after the final norm, where the model has one.

    Raises:
      InputError: as `score`.
    """
    return self._rows(text, 'hidden', self._model.config.width)

  def values(self, ids: np.ndarray, top_k: int = 0) -> surprise.Values:
    """Returns what the model says of ids[1:], each after all ids before it.

    Args:
      ids: tokens, the first of which is only read.
      top_k: how many of the likeliest tokens to return for each.

    Raises:
      InputError: there are more than learned positions or memory allow.
    """
    ids = np.asarray(ids, np.int32)
    counted_L = np.ones(len(ids) - 1, bool)
    framed = framing.Framed(b'', int(ids[0]), ids[1:], counted_L)
    self._check_length(framed, TOKEN_BYTES + top_k * ALTERNATIVE_BYTES)
    return self._values(framed, top_k)

  def _score(self, text, top_k):
    token_bytes = TOKEN_BYTES + top_k * ALTERNATIVE_BYTES
    framed = self._frame(text, token_bytes)
    values = self._values(framed, top_k)
    return surprise.Score(framed, values, self._bundle.tokenizer)

  def _values(self, framed, top_k):
    program = functools.partial(_values, self._model, top_k)
    parts = [*self._run(framed, program)]
    return surprise.Values(*map(np.concatenate, zip(*parts, strict=True)))

  def _rows(self, text, method, width):
    framed = self._frame(text, 4 * width)
    program = functools.partial(_apply, self._model, method)
    return np.concatenate([part for (part,) in self._run(framed, program)])

  def _frame(self, text, token_bytes):
    """Returns a framed text of which `token_bytes` per token fit in memory."""
    framed = framing.frame(self._bundle, text)
    self._check_length(framed, token_bytes)
    return framed

  def _check_length(self, framed, token_bytes):
    count = len(framed.ids_L)
    if self.longest and count > self.longest:
      raise errors.InputError(
        f'text of {count:,} tokens with its boundary: the model has learned '
        f'positions for {self.longest:,}: give a shorter text, or train with '
        "model.positions='sinusoidal'"
      )
    bounds.check(
      count * token_bytes, f'text of {count:,} tokens', 'give parts of it'
    )

  def _run(self, framed, program) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields the outputs of a program for each chunk, on the host.

    While the host reads those of one chunk, the device runs the next.
    """
    # Committed to the device, as it is after a chunk: one program for both.
    state = jax.device_put(_init_state(self._model), self._device)
    waiting = ()
    with activity.doing('scoring', len(framed.ids_L), 'tokens') as done:
      for chunk, count in _chunks(framed):
        inputs = jax.device_put(chunk, self._device)
        state, outputs = program(self._params, state, inputs)
        yield from map(_fetch, waiting)
        waiting = ((outputs, count),)
        done(count)
      yield from map(_fetch, waiting)


def _fetch(chunk):
  outputs, count = chunk
  return tuple(x[:count] for x in jax.device_get(outputs))


def _chunks(framed):
  """Yields (_Chunk, number of its tokens); the rest of it is padding."""
  read_L, targets_L = framed.read_L, framed.ids_L
  for begin in range(0, len(targets_L), LENGTHS[-1]):
    count = min(LENGTHS[-1], len(targets_L) - begin)
    length = next(length for length in LENGTHS if length >= count)
    chunk = _Chunk(*(np.zeros((1, length), np.int32) for _ in range(3)))
    chunk.read_BxL[0, :count] = read_L[begin : begin + count]
    chunk.targets_BxL[0, :count] = targets_L[begin : begin + count]
    # Padding restarts at each step: its positions stay within a table.
    chunk.starts_BxL[0, count:] = 1
    chunk.starts_BxL[0, 0] = begin == 0
    yield chunk, count


@functools.partial(jax.jit, static_argnums=0)
def _init_state(model):
  return model.apply({}, 1, method='init_state')


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _apply(model, method, params, state, chunk):
  """Returns (state, (rows_LxN of a method,))."""
  state, rows_BxLxN = _run_model(model, method, params, state, chunk)
  return state, (rows_BxLxN[0],)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _values(model, top_k, params, state, chunk):
  """Returns (state, surprise.Values)."""
  state, z_BxLxV = _run_model(model, '__call__', params, state, chunk)
  z_LxV, targets_L = z_BxLxV[0], chunk.targets_BxL[0]
  target_Lx1 = jnp.take_along_axis(z_LxV, targets_L[:, None], -1)
  logp_LxV = jax.nn.log_softmax(z_LxV, -1)
  top_logprob_LxK, top_LxK = jax.lax.top_k(logp_LxV, top_k)
  terms_LxV = jnp.exp(logp_LxV) * jnp.where(logp_LxV > -jnp.inf, logp_LxV, 0)
  return state, surprise.Values(
    jnp.take_along_axis(logp_LxV, targets_L[:, None], -1)[:, 0],
    1 + jnp.sum(z_LxV > target_Lx1, -1, dtype=jnp.int32),
    -jnp.sum(terms_LxV, -1),
    top_LxK,
    top_logprob_LxK,
  )


def _run_model(model, method, params, state, chunk):
  state, rows_BxLxN = model.apply(
    {'params': int8_weights.unpack(params)},
    state,
    chunk.read_BxL,
    chunk.starts_BxL,
    method=method,
  )
  return state, rows_BxLxN.astype(jnp.float32)
