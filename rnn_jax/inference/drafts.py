"""Decoding with drafts: several tokens are checked at once, to the same bits.

    check     logits after each token of a draft, and the state after each
    decode    as decode.decode: a drafted token counts if the row would have
              chosen it, and the first that doesn't ends the draft

Drafts come from the row's own text (prompt_lookup.py) or from a small model
(draft_model.py). A token of a text is drawn with the row's own random number
for its place, so that greedy and sampled texts are the same with drafts and
without. So are their bits: within a layer all products, norms and the MLP are
of all tokens of the draft, in the fixed order of single steps
(ops/fixed_order), and the recurrence makes single steps. A state is one
step's work old at each token, and going back to any of them costs nothing.

Shapes: T tokens of a draft with the one before it, T = N + 1.
Source: Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding", 2023.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.inference import decode as decode_lib
from rnn_jax.inference import prompt_lookup
from rnn_jax.inference import row_adapters
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.models import mlp
from rnn_jax.models import packed_weights
from rnn_jax.ops import fixed_order

MOST = 16  # tokens of a draft


class Drafter(Protocol):
  """What drafts. It is static; `memory` is what it carries from call to call.

  Attributes:
    tokens: N, of a draft.
  """

  @property
  def tokens(self) -> int: ...

  def propose(
    self,
    weights: Any,
    memory: Any,
    token_B: jax.Array,
    choose: Callable[[jax.Array, jax.Array], jax.Array],
  ) -> tuple[Any, jax.Array, jax.Array]:
    """Drafts what may follow a new token of each row.

    Args:
      weights: what it computes with.
      memory: of the texts before that token.
      token_B: the token.
      choose: (logits_BxV, n) -> token_B, as the row chooses at the place of
        the draft's token n.

    Returns:
      (what `settle` gets, tokens_BxN, whether a row has a draft, B).
    """

  def settle(self, tried: Any, tokens_BxT: jax.Array, made_B: jax.Array) -> Any:
    """Returns the memory after the first `made_B` tokens, 0 of some rows."""


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


def check_count(count: int) -> None:
  """Checks how many tokens a draft may have; 0: there are no drafts.

  Raises:
    InputError: it is out of range.
  """
  if not 0 <= count <= MOST:
    errors.refuse('draft_tokens', count, f'give 0 to {MOST}')


def check(
  model: nn.Module,
  weights: decode_lib.Weights,
  state: Any,
  tokens_BxT: jax.Array,
  adapter_B: jax.Array | None = None,
) -> tuple[Any, jax.Array]:
  """Reads tokens. Returns (the states after each, logits_BxTxV).

  Leaves of these states have an axis T in front.
  """
  own = {}
  if weights.adapters:
    own = row_adapters.take(weights.adapters, adapter_B)
  position, _ = state
  with row_adapters.applied(own), nn.intercept_methods(_stepwise):
    (_, states), logits_BxTxV = decode_lib.apply(
      model, weights.params, state, tokens_BxT, stepwise=True
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


class Limits(NamedTuple):
  """When a call ends: scalars."""

  tokens: Any  # of a row, at most options.buffer
  runs: Any  # of the model; 1 if rows are constrained


class Constrained(NamedTuple):
  """What a constraint says of the next places of rows."""

  allowed_BxM: Any  # of the first place, see sampler.adjust
  forced_BxN: Any  # then those that may only be one token,
  forced_B: Any  # how many


class Runs(NamedTuple):
  """How often a call has run the model: scalars."""

  all: Any
  checks: Any  # of these, those that checked a draft


class _Loop(NamedTuple):
  carry: decode_lib.Carry
  memory: Any
  done_B: jax.Array
  produced: decode_lib.Produced
  runs: Runs


class _Draft(NamedTuple):
  """A draft of each row."""

  tried: Any  # what the drafter settles
  tokens_BxN: jax.Array
  forced_BxN: jax.Array  # whether a constraint allows no other token
  open_BxN: jax.Array  # whether a token may be kept


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(4, 5))
def decode(
  model: nn.Module,
  options: decode_lib.Options,
  drafter: Drafter,
  weights: decode_lib.Weights,
  carry: decode_lib.Carry,
  memory: Any,
  packed: sampling.Packed,
  limits: Limits,
  draft_weights: Any = None,
  constrained: Constrained | None = None,
) -> tuple[decode_lib.Carry, Any, Runs, decode_lib.Produced]:
  """Makes tokens of each active row, as `decode.decode`.

  Rows with penalties, biases or a minimum length to reach get no drafts, and
  constrained ones only tokens that are forced.

  Args:
    model: the model.
    options: what is fixed at compilation.
    drafter: drafts.
    weights: what the model computes with.
    carry: the rows; donated.
    memory: the drafter's, of their texts so far; donated.
    packed: the options of the rows.
    limits: when the call ends.
    draft_weights: what the drafter computes with.
    constrained: what constrained rows may choose; None: no row is.

  Returns:
    (carry, memory, runs of the model, the tokens made).
  """
  rows = sampling.unpack(packed)
  keys_B = sampler.keys(rows)
  B, N = len(keys_B), options.buffer
  room = N + drafter.tokens + 1
  produced = decode_lib.nothing(B, options._replace(buffer=room))
  given = drafter, weights, rows, keys_B, limits, draft_weights, constrained
  run = _Step(model, options.kind, *given)
  runs = Runs(jnp.int32(0), jnp.int32(0))
  loop = _Loop(carry, memory, ~rows.active_B, produced, runs)
  loop = jax.lax.while_loop(
    lambda loop: jnp.any(run.active(loop)) & (loop.runs.all < limits.runs),
    run.advance,
    loop,
  )
  made_B, *buffers = loop.produced
  produced = decode_lib.Produced(made_B, *(x[:, :N] for x in buffers))
  return loop.carry, loop.memory, loop.runs, produced


class _Step(NamedTuple):
  """What a step of the loop needs."""

  model: nn.Module
  kind: sampling.Kind
  drafter: Drafter
  weights: decode_lib.Weights
  rows: sampling.Rows
  keys_B: jax.Array
  limits: Limits
  draft_weights: Any
  constrained: Constrained | None

  def active(self, loop):
    return ~loop.done_B & (loop.produced.made_B < self.limits.tokens)

  def advance(self, loop):
    carry, produced = loop.carry, loop.produced
    active_B = self.active(loop)
    B, N = len(active_B), self.drafter.tokens
    row_B = jnp.arange(B)
    allowed_BxM = self.constrained.allowed_BxM if self.constrained else None
    given = self.keys_B, carry.logits_BxV, carry.position_B, carry.memory
    token_B = decode_lib.choose(self.kind, self.rows, *given, allowed_BxM)
    of_token = self._logprobs(self.rows, carry.logits_BxV, token_B)
    draft = self._propose(loop, token_B)
    tokens_BxT = jnp.concatenate([token_B[:, None], draft.tokens_BxN], 1)
    open_BxN = draft.open_BxN & active_B[:, None]

    def checked():
      states, logits_BxTxV = check(
        self.model, self.weights, carry.state, tokens_BxT, self.rows.adapter_B
      )
      same_BxN, of_draft = self._compare(carry, draft, logits_BxTxV[:, :-1])
      more_B = self._accepted(loop, tokens_BxT, same_BxN & open_BxN)
      state = jax.tree.map(lambda x: x[more_B, row_B], states)
      return state, logits_BxTxV[row_B, more_B], more_B, of_draft

    run = decode_lib.stepping(self.model, self.weights, self.rows.adapter_B)

    def single():
      none = [jnp.zeros((B, N, *x.shape[1:]), x.dtype) for x in of_token]
      more_B = jnp.zeros(B, jnp.int32)
      return *run(carry.state, token_B), more_B, none

    state, logits_BxV, more_B, of_draft = jax.lax.cond(
      jnp.any(open_BxN), checked, single
    )
    made_B = jnp.where(active_B, 1 + more_B, 0)
    others = [
      jnp.concatenate([x[:, None], more], 1)
      for x, more in zip(of_token, of_draft, strict=True)
    ]
    buffers = [
      prompt_lookup.put(buffer, x, produced.made_B)
      for buffer, x in zip(produced[1:], (tokens_BxT, *others), strict=True)
    ]
    produced = decode_lib.Produced(produced.made_B + made_B, *buffers)
    position_B = carry.position_B + made_B
    last_B = tokens_BxT[row_B, more_B]
    ended_B = last_B == self.rows.boundary_B
    ended_B |= position_B >= self.rows.limit_B

    def kept(new, old):
      return jnp.where(active_B.reshape(B, *[1] * (new.ndim - 1)), new, old)

    state = jax.tree.map(kept, state, carry.state)
    logits_BxV = kept(logits_BxV, carry.logits_BxV)
    counted = carry.memory
    if counted is not None:  # rows that need it have no drafts
      counted = counted.counting(token_B, active_B.astype(jnp.int32))
    carry = decode_lib.Carry(state, logits_BxV, position_B, counted)
    memory = self.drafter.settle(draft.tried, tokens_BxT, made_B)
    done_B = loop.done_B | (active_B & ended_B)
    runs = Runs(loop.runs.all + 1, loop.runs.checks + jnp.any(open_BxN))
    return _Loop(carry, memory, done_B, produced, runs)

  def _logprobs(self, rows, logits_BxV, token_B):
    return sampler.logprobs(logits_BxV, token_B, rows, self.kind)

  def _choose(self, rows, keys_B, logits_BxV, position_B):
    """Chooses tokens of rows whose logits nothing adjusts."""
    kind = self.kind._replace(adjusts=False)
    return decode_lib.choose(kind, rows, keys_B, logits_BxV, position_B)

  def _propose(self, loop, token_B):
    """Returns the draft after a new token of each row."""
    next_B = loop.carry.position_B + 1

    def choose(logits_BxV, n):
      return self._choose(self.rows, self.keys_B, logits_BxV, next_B + n)

    tried, tokens_BxN, found_B = self.drafter.propose(
      self.draft_weights, loop.memory, token_B, choose
    )
    found_B &= ~sampler.adjusts(self.rows, next_B)
    forced_BxN = jnp.zeros(tokens_BxN.shape, bool)
    if self.constrained is not None:
      _, own_BxN, forced_B = self.constrained
      forced_BxN = jnp.arange(self.drafter.tokens)[None] < forced_B[:, None]
      tokens_BxN = jnp.where(forced_BxN, own_BxN, tokens_BxN)
    open_BxN = found_B[:, None] | forced_BxN
    return _Draft(tried, tokens_BxN, forced_BxN, open_BxN)

  def _compare(self, carry, draft, logits_BxNxV):
    """Compares a draft with what rows choose after the tokens before.

    Returns:
      (whether each token agrees, BxN; log-probabilities of the draft, as of
      sampler.logprobs, BxN...).
    """
    B, N = draft.tokens_BxN.shape
    flat = logits_BxNxV.reshape(B * N, -1)
    rows, keys = jax.tree.map(
      lambda x: jnp.repeat(x, N), (self.rows, self.keys_B)
    )
    place_BxN = carry.position_B[:, None] + 1 + jnp.arange(N)[None]
    chosen = self._choose(rows, keys, flat, place_BxN.reshape(-1))
    same_BxN = draft.tokens_BxN == chosen.reshape(B, N)
    others = self._logprobs(rows, flat, draft.tokens_BxN.reshape(-1))
    others = [x.reshape(B, N, *x.shape[1:]) for x in others]
    return same_BxN | draft.forced_BxN, others

  def _accepted(self, loop, tokens_BxT, same_BxN):
    """Returns how many drafted tokens count, of each row."""
    open_BxN = tokens_BxT[:, :-1] != self.rows.boundary_B[:, None]
    more_B = jnp.cumprod(same_BxN & open_BxN, 1).sum(1)
    limit_B = self.rows.limit_B - loop.carry.position_B - 1
    room_B = self.limits.tokens - loop.produced.made_B - 1
    most_B = jnp.minimum(limit_B, room_B)
    return jnp.clip(jnp.minimum(more_B, most_B), 0).astype(jnp.int32)
