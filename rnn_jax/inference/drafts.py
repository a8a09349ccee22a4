"""Decoding with drafts: several tokens are checked at once, to the same bits.

    look_up   what followed the last two or three tokens where they were before
    check     logits after each token of a draft, and the state after each
    decode    as decode.decode: a drafted token counts if the row would have
              chosen it, and the first that doesn't ends the draft

A token of a text is drawn with the row's own random number for its place, so
that greedy and sampled texts are the same with drafts and without. So are their
bits: within a layer all products, norms and the MLP are of all tokens of the
draft, in the fixed order of single steps (models/fixed_order.py), and the
recurrence makes single steps. A state is one step's work old at each token, and
going back to any of them costs nothing.

Shapes: T tokens of a draft with the one before it; histories BxH.
Sources: Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding", 2023; Saxena, "Prompt Lookup Decoding", 2023.
"""

import functools
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.cells import base
from rnn_jax.inference import decode as decode_lib
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.models import mlp
from rnn_jax.models import packed_weights
from rnn_jax.ops import fixed_order

MATCHED = 3  # the most tokens that a look-up compares
LEAST = 2


def lacking(model: nn.Module, params: Any) -> str:
  """Returns why a model's tokens can't be drafted; '' if they can."""
  if why := fixed_order.lacking():
    return why
  if not packed_weights.is_wholly_packed(params):
    return (
      'a draft changes no bit only if all matrices are packed '
      '(batch_invariant=True, or other weights)'
    )
  if model.policy.activations != jnp.float32:
    return 'activations in bfloat16 are rounded in another way'
  return ''


class History(NamedTuple):
  """The tokens of prompts and texts so far: the first `length_B` count."""

  tokens_BxH: Any
  length_B: Any


def history(prompts: list[np.ndarray], more: int) -> History:
  """Returns the history of prompts, with room for `more` new tokens."""
  longest = max(map(len, prompts)) + more
  tokens = np.zeros((len(prompts), decode_lib.buffer_size(longest)), np.int32)
  for row, ids in enumerate(prompts):
    tokens[row, : len(ids)] = ids
  return History(tokens, np.array([len(ids) for ids in prompts], np.int32))


def look_up(past: History, count: int) -> tuple[jax.Array, jax.Array]:
  """Returns (tokens_BxN to come, perhaps; whether anything was found, B).

  They follow the latest place where the last MATCHED tokens, or else fewer but
  LEAST, were before.

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


def check(
  model: nn.Module, params: Any, state: Any, tokens_BxT: jax.Array
) -> tuple[Any, jax.Array]:
  """Reads tokens. Returns (the states after each, logits_BxTxV).

  Leaves of these states have an axis T in front.
  """
  position, _ = state
  with nn.intercept_methods(_stepwise):
    (_, states), logits_BxTxV = decode_lib.apply(
      model, params, state, tokens_BxT, stepwise=True
    )
  counts_Tx1 = jnp.arange(1, tokens_BxT.shape[1] + 1)[:, None]
  positions = jax.tree.map(
    lambda x: x[None] + counts_Tx1.astype(x.dtype), position
  )
  return (positions, states), logits_BxTxV


def _stepwise(run, args, options, context):
  """Runs a recurrence step by step, and returns the state after each."""
  module = context.module
  if isinstance(module, base.Cell) and context.method_name == 'recur':
    state, u, _ = args
    states, outputs = [], []
    for t in range(jax.tree.leaves(u)[0].shape[1]):
      state, y = module.step(state, jax.tree.map(lambda x, t=t: x[:, t], u))
      states.append(state)
      outputs.append(y)
    stack = functools.partial(jax.tree.map, lambda *x: jnp.stack(x))
    y = jax.tree.map(lambda *y: jnp.stack(y, 1), *outputs)
    return stack(*states), y
  if isinstance(module, mlp.TokenShift) and context.method_name == '__call__':
    _, x_BxTxD = args[:2]
    _, y = run(*args, **options)
    return x_BxTxD.swapaxes(0, 1)[:, :, None].astype(jnp.float32), y
  return run(*args, **options)


class _Loop(NamedTuple):
  carry: decode_lib.Carry
  past: History
  done_B: jax.Array
  produced: decode_lib.Produced
  calls: jax.Array


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(4, 5))
def decode(
  model: nn.Module,
  options: decode_lib.Options,
  drafted: int,
  weights: decode_lib.Weights,
  carry: decode_lib.Carry,
  past: History,
  packed: sampling.Packed,
  count: jax.Array,
) -> tuple[decode_lib.Carry, History, jax.Array, decode_lib.Produced]:
  """Makes up to `count` tokens of each active row, as `decode.decode`.

  Args:
    model: the model.
    options: what is fixed at compilation; its kind adjusts no logits and
      reports no alternatives.
    drafted: tokens of a draft, at most.
    weights: what the model computes with, without adapters.
    carry: the rows; donated.
    past: their texts so far, with room for the tokens; donated.
    packed: the options of the rows.
    count: tokens of a row, at most options.buffer; a scalar.

  Returns:
    (carry, past, calls of the model, the tokens made).
  """
  rows = sampling.unpack(packed)
  keys_B = sampler.keys(rows)
  B, N = len(keys_B), options.buffer
  produced = decode_lib.nothing(B, options._replace(buffer=N + drafted + 1))
  run = _Step(model, options.kind, drafted, weights, rows, keys_B, count)
  loop = _Loop(carry, past, ~rows.active_B, produced, jnp.int32(0))
  loop = jax.lax.while_loop(
    lambda loop: jnp.any(run.active(loop)), run.advance, loop
  )
  made_B, *buffers = loop.produced
  produced = decode_lib.Produced(made_B, *(x[:, :N] for x in buffers))
  return loop.carry, loop.past, loop.calls, produced


class _Step(NamedTuple):
  """What a step of the loop needs."""

  model: nn.Module
  kind: sampling.Kind
  drafted: int
  weights: decode_lib.Weights
  rows: sampling.Rows
  keys_B: jax.Array
  most: jax.Array

  def active(self, loop):
    return ~loop.done_B & (loop.produced.made_B < self.most)

  def choose(self, logits_BxV, position_B, repeats=1):
    """Returns (token_B, its logprob_B) of `repeats` places of each row."""
    keys_B = jnp.repeat(self.keys_B, repeats)
    rows = jax.tree.map(lambda x: jnp.repeat(x, repeats), self.rows)
    keys_B = jax.vmap(jax.random.fold_in)(keys_B, position_B)

    def choose(keys_B, logits_BxV):
      return sampler.choose(keys_B, logits_BxV, rows, self.kind)

    token_B = fixed_order.evaluate(choose, keys_B, logits_BxV)
    logprob_B, *_ = sampler.logprobs(logits_BxV, token_B, rows, self.kind)
    return token_B, logprob_B

  def advance(self, loop):
    carry, past, produced = loop.carry, loop.past, loop.produced
    active_B = self.active(loop)
    B = len(active_B)
    row_B = jnp.arange(B)
    token_B, logprob_B = self.choose(carry.logits_BxV, carry.position_B)
    past = past._replace(
      tokens_BxH=past.tokens_BxH.at[row_B, past.length_B].set(token_B),
      length_B=past.length_B + 1,
    )
    draft_BxN, found_B = look_up(past, self.drafted)
    tokens_BxT = jnp.concatenate([token_B[:, None], draft_BxN], 1)

    def checked():
      states, logits_BxTxV = check(
        self.model, self.weights.params, carry.state, tokens_BxT
      )
      place_BxN = carry.position_B[:, None] + 1 + jnp.arange(self.drafted)[None]
      flat = logits_BxTxV[:, :-1].reshape(B * self.drafted, -1)
      chosen, logprob = self.choose(flat, place_BxN.reshape(-1), self.drafted)
      chosen_BxN = chosen.reshape(B, -1)
      more_B = self._accepted(loop, tokens_BxT, chosen_BxN)
      state = jax.tree.map(lambda x: x[more_B, row_B], states)
      logits_BxV = logits_BxTxV[row_B, more_B]
      return state, logits_BxV, more_B, logprob.reshape(B, -1)

    def single():
      state, logits_BxTxV = decode_lib.apply(
        self.model, self.weights.params, carry.state, token_B[:, None]
      )
      none = jnp.zeros((B, self.drafted))
      return state, logits_BxTxV[:, 0], jnp.zeros(B, jnp.int32), none

    state, logits_BxV, more_B, logprob_BxN = jax.lax.cond(
      jnp.any(found_B & active_B), checked, single
    )
    made_B = jnp.where(active_B, 1 + more_B, 0)
    logprob_BxT = jnp.concatenate([logprob_B[:, None], logprob_BxN], 1)
    past = past._replace(
      tokens_BxH=_put(past.tokens_BxH, tokens_BxT, past.length_B - 1),
      length_B=past.length_B - 1 + made_B,
    )
    produced = produced._replace(
      made_B=produced.made_B + made_B,
      tokens_BxN=_put(produced.tokens_BxN, tokens_BxT, produced.made_B),
      logprobs_BxN=_put(produced.logprobs_BxN, logprob_BxT, produced.made_B),
    )
    position_B = carry.position_B + made_B
    last_B = tokens_BxT[row_B, more_B]
    ended_B = last_B == self.rows.boundary_B
    ended_B |= position_B >= self.rows.limit_B

    def kept(new, old):
      return jnp.where(active_B.reshape(B, *[1] * (new.ndim - 1)), new, old)

    state = jax.tree.map(kept, state, carry.state)
    logits_BxV = kept(logits_BxV, carry.logits_BxV)
    carry = decode_lib.Carry(state, logits_BxV, position_B)
    done_B = loop.done_B | (active_B & ended_B)
    return _Loop(carry, past, done_B, produced, loop.calls + 1)

  def _accepted(self, loop, tokens_BxT, chosen_BxN):
    """Returns how many drafted tokens count, of each row."""
    same_BxN = tokens_BxT[:, 1:] == chosen_BxN
    open_BxN = tokens_BxT[:, :-1] != self.rows.boundary_B[:, None]
    more_B = jnp.cumprod(same_BxN & open_BxN, 1).sum(1)
    limit_B = self.rows.limit_B - loop.carry.position_B - 1
    room_B = self.most - loop.produced.made_B - 1
    most_B = jnp.minimum(limit_B, room_B)
    return jnp.clip(jnp.minimum(more_B, most_B), 0).astype(jnp.int32)


def _put(x_BxN, part_BxT, begin_B):
  put = functools.partial(jax.lax.dynamic_update_slice_in_dim, axis=0)
  return jax.vmap(put)(x_BxN, part_BxT, begin_B)
