"""Drafts by a small model, which writes ahead of the one that decides.

Both read the same text. The small one chooses with the row's own random numbers
for the places of its tokens, so that it draws what the large one does wherever
their distributions are close. It may be any model with the same tokens, in any
precision: what counts is decided elsewhere (drafts.py). Its state after each
token of a draft is kept until the draft is settled, as a state can't be cut
short.

Shapes: drafts of N tokens, T = N + 1 with the token before them.
Source: Chen et al., "Accelerating Large Language Model Decoding with
Speculative Sampling", 2023.
"""

import os
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.inference import decode
from rnn_jax.inference import prompts


def check(
  own: prompts.Prompts, draft: prompts.Prompts, workdir: str | os.PathLike
) -> None:
  """Checks that a model's tokens can be drafted by another.

  Args:
    own: the prompts of the model that decides.
    draft: those of the small one.
    workdir: where that is from.

  Raises:
    InputError: it has other tokens, or learned positions.
  """
  if draft.tokenizer.spec() != own.tokenizer.spec():
    small, large = (
      f'{x.tokenizer.spec()["kind"]}, {x.tokenizer.size:,} tokens'
      for x in (draft, own)
    )
    errors.refuse(
      'draft_workdir',
      str(workdir),
      f"its tokenizer ({small}) isn't the model's ({large}): give a run with "
      'the same tokenizer',
    )
  if draft.longest:
    errors.refuse(
      'draft_workdir',
      str(workdir),
      f'it has learned positions for {draft.longest} tokens, and reads ahead '
      'of a text: give a run without',
    )


class SmallModel(NamedTuple):
  """Drafts by a model, see drafts.Drafter; its memory is the model's state."""

  model: nn.Module
  tokens: int  # N

  def propose(
    self,
    weights: decode.Weights,
    state: Any,
    token_B: jax.Array,
    choose: Callable[[jax.Array, jax.Array], jax.Array],
  ) -> tuple[Any, jax.Array, jax.Array]:
    """Returns (the states after 0, 1, ..., T tokens, tokens_BxN, True_B)."""
    run = decode.stepping(self.model, weights)

    def advance(carry, n):
      state, token_B = carry
      state, logits_BxV = run(state, token_B)
      token_B = choose(logits_BxV, n)
      return (state, token_B), (state, token_B)

    # The last step reads the last token; what it chooses is nobody's.
    place_T = jnp.arange(self.tokens + 1)
    _, (after, tokens_TxB) = jax.lax.scan(advance, (state, token_B), place_T)
    states = jax.tree.map(
      lambda old, new: jnp.concatenate([old[None], new]), state, after
    )
    return states, tokens_TxB[:-1].T, jnp.ones(len(token_B), bool)

  def settle(
    self, states: Any, tokens_BxT: jax.Array, made_B: jax.Array
  ) -> Any:
    """Returns the state after the first `made_B` of the tokens."""
    row_B = jnp.arange(len(tokens_BxT))
    return jax.tree.map(lambda x: x[made_B, row_B], states)
