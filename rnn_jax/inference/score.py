"""Scores texts: a trained model's log-probability of every token.

    scorer = Scorer(bundle.read('runs/demo', 'best'))
    for score in scorer.score(['def main():', 'dfe niam)(:'], top_k=3):
      print(score.loss, score.bits_per_byte)

A text is read in chunks (chunks.py), one text at a time: a score doesn't depend
on the other texts, to the last bit.
`values_of` reads several rows together, which fills the device.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.inference import chunks
from rnn_jax.inference import decode
from rnn_jax.inference import framing
from rnn_jax.inference import layers
from rnn_jax.inference import sampling
from rnn_jax.inference import surprise
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import activity
from rnn_jax.system import bounds

TOKEN_BYTES = 32  # of a token on the host: its ids, values and place
ALTERNATIVE_BYTES = 8


class Scorer:
  """A model that is ready to score. Its programs are compiled once."""

  def __init__(self, bundle: bundle_lib.Bundle):
    """Takes a model, whose parameters may be packed.

    Raises:
      InputError: it predicts classes, or doesn't fit on this machine.
    """
    task = bundle.config.task
    if task.reads_series:
      errors.refuse(
        'task.name',
        task.name,
        'the model reads numbers, not texts: use launch.evaluate',
      )
    if task.classifies or not task.writes_text:
      errors.refuse(
        'task.name',
        task.name,
        'the model predicts classes, not the tokens of a text: use '
        + ('predict' if task.classifies else 'launch.evaluate'),
      )
    sizes = values.largest_sizes(bundle.config)
    bounds.check_arrays(bundle.params, f'parameters with {sizes}')
    model = language_model.from_config(bundle.config, bundle.tokenizer.size)
    self._bundle = bundle
    self._model = layers.for_inference(model)
    self._device = jax.local_devices()[0]
    self._params = layers.place(bundle.params, self._device)

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
      top_k: how many of the most likely tokens to return for each token.

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
      top_k: how many of the most likely tokens to return for each.

    Raises:
      InputError: there are more than learned positions or memory allow.
    """
    return self.values_of([ids], top_k)[0]

  def values_of(
    self, rows: Sequence[np.ndarray], top_k: int = 0
  ) -> list[surprise.Values]:
    """Returns the `values` of each row of ids, all of which are read together.

    A row's numbers depend on the number of rows only in their rounding. Rows of
    about one length, in numbers that repeat, are padded and compiled least.

    Args:
      rows: ids, the first of each of which is only read.
      top_k: how many of the most likely tokens to return for each.

    Raises:
      InputError: as `values`.
    """
    rows = [np.asarray(ids, np.int32) for ids in rows]
    for ids in rows:
      token_bytes = TOKEN_BYTES + top_k * ALTERNATIVE_BYTES
      self._check_length(len(ids) - 1, token_bytes * len(rows))
    return self._values([(ids[:-1], ids[1:]) for ids in rows], top_k)

  def _score(self, text, top_k):
    token_bytes = TOKEN_BYTES + top_k * ALTERNATIVE_BYTES
    framed = self._frame(text, token_bytes)
    (values,) = self._values([(framed.read_L, framed.ids_L)], top_k)
    return surprise.Score(framed, values, self._bundle.tokenizer)

  def _values(self, rows, top_k):
    kept = self._kept(top_k)
    program = functools.partial(_values, self._model, kept)
    values = [surprise.Values(*each) for each in self._run(rows, program)]
    return [
      each._replace(
        top_LxK=each.top_LxK[:, :top_k],
        top_logprob_LxK=each.top_logprob_LxK[:, :top_k],
      )
      for each in values
    ]

  def _kept(self, top_k):
    """Returns how many a program keeps: few numbers, few programs."""
    if not top_k:
      return 0
    most = max(sampling.ALTERNATIVES, 1 << (top_k - 1).bit_length())
    return min(most, self._bundle.tokenizer.size)

  def _rows(self, text, method, width):
    framed = self._frame(text, 4 * width)
    program = functools.partial(_apply, self._model, method)
    ((rows_LxN,),) = self._run([(framed.read_L, framed.ids_L)], program)
    return rows_LxN

  def _frame(self, text, token_bytes):
    """Returns a framed text of which `token_bytes` per token fit in memory."""
    framed = framing.frame(self._bundle, text)
    self._check_length(len(framed.ids_L), token_bytes)
    return framed

  def _check_length(self, count, token_bytes):
    if self.longest and count > self.longest:
      raise errors.InputError(
        f'text of {count:,} tokens with its boundary: the model has learned '
        f'positions for {self.longest:,}: give a shorter text, or train with '
        "model.positions='sinusoidal'"
      )
    bounds.check(
      count * token_bytes, f'text of {count:,} tokens', 'give parts of it'
    )

  def _run(self, rows, program) -> list[tuple[np.ndarray, ...]]:
    """Returns a program's outputs for each row, (ids to read, targets).

    While the host reads those of one chunk, the device runs the next.
    """
    # Committed to the device, as it is after a chunk: one program for both.
    state = jax.device_put(_init_state(self._model, len(rows)), self._device)
    parts = [[] for _ in rows]
    waiting = ()
    total = sum(len(read_L) for read_L, _ in rows)
    with activity.doing('scoring', total, 'tokens') as done:
      for chunk in chunks.split(rows):
        inputs = jax.device_put(chunk, self._device)
        state, outputs = program(self._params, state, inputs)
        for each in waiting:
          _fetch(parts, *each)
        waiting = ((outputs, chunk.counts_B),)
        done(int(chunk.counts_B.sum()))
      for each in waiting:
        _fetch(parts, *each)
    return [tuple(map(np.concatenate, zip(*own, strict=True))) for own in parts]


def _fetch(parts, outputs, counts_B):
  """Adds a chunk's outputs to the parts of each row that has some."""
  outputs = jax.device_get(outputs)
  for row, count in enumerate(counts_B):
    if count:
      parts[row].append(tuple(x[row, :count] for x in outputs))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _init_state(model, B):
  return model.apply({}, B, method='init_state')


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _apply(model, method, params, state, chunk):
  """Returns (state, (rows_BxLxN of a method,))."""
  state, rows_BxLxN = _run_model(model, method, params, state, chunk)
  return state, (rows_BxLxN,)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _values(model, top_k, params, state, chunk):
  """Returns (state, surprise.Values of each row)."""
  state, z_BxLxV = _run_model(model, '__call__', params, state, chunk)
  _, targets_BxL = chunk.arrays
  targets_BxLx1 = targets_BxL[..., None]
  target_BxLx1 = jnp.take_along_axis(z_BxLxV, targets_BxLx1, -1)
  logp_BxLxV = jax.nn.log_softmax(z_BxLxV, -1)
  top_logprob_BxLxK, top_BxLxK = jax.lax.top_k(logp_BxLxV, top_k)
  finite_BxLxV = jnp.where(logp_BxLxV > -jnp.inf, logp_BxLxV, 0)
  return state, surprise.Values(
    jnp.take_along_axis(logp_BxLxV, targets_BxLx1, -1)[..., 0],
    1 + jnp.sum(z_BxLxV > target_BxLx1, -1, dtype=jnp.int32),
    -jnp.sum(jnp.exp(logp_BxLxV) * finite_BxLxV, -1),
    top_BxLxK,
    top_logprob_BxLxK,
  )


def _run_model(model, method, params, state, chunk):
  state, rows_BxLxN = decode.apply(
    model, params, state, chunk.arrays[0], chunk.starts_BxL, method
  )
  return state, rows_BxLxN.astype(jnp.float32)
