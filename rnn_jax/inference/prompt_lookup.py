"""Drafts by prompt lookup: what followed the last tokens before.

    a b c d e f ... a b c  ->  d e f

The last MATCHED tokens of a row's prompt and text, or fewer but LEAST, are
looked for in all that came before, and the latest place counts.

Shapes: histories BxH, drafts of N tokens.
Source: Saxena, "Prompt Lookup Decoding", 2023.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import decode

MATCHED = 3  # the most tokens that a look-up compares
LEAST = 2
LEAST_COST = 0.1  # tokens that a check must gain at least
CREDIT = 8  # checks that may gain nothing, at first
PAUSE = 16  # calls without drafts, at most


class History(NamedTuple):
  """The tokens of prompts and texts so far: the first `length_B` count."""

  tokens_BxH: Any
  length_B: Any


def history(prompts: list[np.ndarray], more: int) -> History:
  """Returns the history of prompts, with room for `more` new tokens."""
  longest = max(map(len, prompts)) + more
  tokens = np.zeros((len(prompts), decode.buffer_size(longest)), np.int32)
  for row, ids in enumerate(prompts):
    tokens[row, : len(ids)] = ids
  return History(tokens, np.array([len(ids) for ids in prompts], np.int32))


class Recent:
  """The last tokens of texts that grow, on the host, and whether they draft.

  Attributes:
    past: a row holds at most twice the tokens that are kept of a longer text.
  """

  def __init__(self, B: int, kept: int, room: int) -> None:
    """Holds B empty texts.

    Args:
      B: texts.
      kept: tokens of a text that count at least.
      room: for new tokens, after them.
    """
    self._kept = kept
    tokens_BxH = np.zeros((B, 2 * kept + room), np.int32)
    self.past = History(tokens_BxH, np.zeros(B, np.int32))
    self._pause_B = np.zeros(B, np.int32)  # calls, from now on
    self._next_B = np.ones(B, np.int32)  # the same, of the next pause
    self._credit_B = np.zeros(B, np.float32)  # checks

  @property
  def columns(self) -> tuple[np.ndarray, ...]:
    """All arrays, to move a row."""
    return *self.past, self._pause_B, self._next_B, self._credit_B

  def begin(self, row: int, ids: np.ndarray) -> None:
    """Begins a row's text with these tokens."""
    self.past.length_B[row] = 0
    self._pause_B[row], self._next_B[row] = 0, 1
    self._credit_B[row] = CREDIT
    self.add(row, ids[-self._kept :])

  def add(self, row: int, ids: Sequence[int] | np.ndarray) -> None:
    """Adds tokens to a row's text, no more than are kept or have room."""
    tokens_H, length = self.past.tokens_BxH[row], int(self.past.length_B[row])
    if length + len(ids) > 2 * self._kept:
      tokens_H[: self._kept] = tokens_H[length - self._kept : length]
      length = self._kept
    tokens_H[length : length + len(ids)] = ids
    self.past.length_B[row] = length + len(ids)

  def judge(self, row: int, gained: int, checks: int, cost: float) -> None:
    """Decides whether a row drafts in the next call.

    A row whose checks have gained too little pauses for 1, 2, 4, ... calls, and
    drafts in one call between them.

    Args:
      row: the row.
      gained: its tokens in this call, beyond one for each run of the model.
      checks: runs that checked drafts.
      cost: the time of such a run, in single steps.
    """
    if self._pause_B[row]:
      self._pause_B[row] -= 1
      return
    credit = self._credit_B[row] + gained / max(cost - 1, LEAST_COST) - checks
    self._credit_B[row] = np.clip(credit, 0, CREDIT)
    if credit < 0:
      self._pause_B[row] = self._next_B[row]
      self._next_B[row] = min(2 * self._next_B[row], PAUSE)
    elif gained:
      self._next_B[row] = 1

  def drafts(self, row: int) -> bool:
    """Returns whether a row drafts in the next call."""
    return not self._pause_B[row]

  def copy(self, rows: int) -> History:
    """Returns the texts of the first rows, empty ones of those that pause."""
    tokens_BxH, length_B = (x[:rows].copy() for x in self.past)
    length_B[self._pause_B[:rows] > 0] = 0
    return History(tokens_BxH, length_B)


class Lookup(NamedTuple):
  """Drafts by look-up in a History, see drafts.Drafter; N is `tokens`."""

  tokens: int

  def propose(
    self,
    weights: None,
    past: History,
    token_B: jax.Array,
    choose: Callable[..., jax.Array],
  ) -> tuple[History, jax.Array, jax.Array]:
    """Returns (the history and a token, drafts tokens_BxN, found_B)."""
    del weights, choose
    row_B = jnp.arange(len(token_B))
    tokens_BxH = past.tokens_BxH.at[row_B, past.length_B].set(token_B)
    past = History(tokens_BxH, past.length_B + 1)
    return past, *look_up(past, self.tokens)

  def settle(
    self, past: History, tokens_BxT: jax.Array, made_B: jax.Array
  ) -> History:
    """Returns the history with the first `made_B` of these tokens."""
    length_B = past.length_B - 1
    tokens_BxH = put(past.tokens_BxH, tokens_BxT, length_B)
    return History(tokens_BxH, length_B + made_B)


def look_up(past: History, count: int) -> tuple[jax.Array, jax.Array]:
  """Returns (tokens_BxN to come, perhaps; whether anything was found, B).

  Args:
    past: the texts.
    count: N.
  """

  def of_row(tokens_H, length):
    H = len(tokens_H)
    place_H = jnp.arange(H)
    equal_H, matched_H = jnp.ones(H, bool), jnp.zeros(H, jnp.int32)
    for back in range(MATCHED):
      before = tokens_H[length - 1 - back]
      shifted_H = jnp.roll(tokens_H, back)
      equal_H &= (shifted_H == before) & (place_H >= back)
      matched_H += equal_H
    matched_H = jnp.where(place_H < length - 1, matched_H, 0)
    best = jnp.max(matched_H * H + place_H)
    found = best // H >= LEAST
    after = jnp.roll(tokens_H, -(best % H) - 1)[:count]
    return after, found

  return jax.vmap(of_row)(*past)


def put(x_BxN: jax.Array, part_BxT: jax.Array, begin_B: jax.Array) -> jax.Array:
  """Returns x with a part of each row replaced; it must fit.

  Further axes of both are alike.
  """

  def put_row(x_N, part_T, begin):
    return jax.lax.dynamic_update_slice_in_dim(x_N, part_T, begin, 0)

  return jax.vmap(put_row)(x_BxN, part_BxT, begin_B)
