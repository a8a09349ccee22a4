"""From prompts to tokens: one pass over the prompts, then one step per token.

Prompts of several lengths are right-aligned in one batch, and `starts` zeroes
each row's state at its first token, so that padding leaves no trace. From then
on only the state is needed, which is constant in size.

Shapes: tokens and starts BxL, logits BxV, the keys and `done` B; the buffer of
new tokens is BxN. Any model works that takes (state, tokens, starts) and
returns (state, logits); `inference.layers` has the fastest form. Parameters may
be packed in 8 bits (models/int8_weights.py) and stay packed between steps.
"""

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import sampling as sampling_lib
from rnn_jax.models import int8_weights

PREFILL_MULTIPLE = 64
LEAST_BUFFER = 16


class Carry(NamedTuple):
  """What one call of `decode` passes to the next; it is donated."""

  state: Any
  logits_BxV: jax.Array  # of the next token
  keys_B: jax.Array  # one PRNG key per row, always the same
  position: jax.Array  # new tokens so far, a scalar


class Produced(NamedTuple):
  """New tokens. After `made` steps the buffers' contents are undefined."""

  tokens_BxN: jax.Array
  logprobs_BxN: jax.Array  # under the model, whatever the sampling
  made: jax.Array


@dataclasses.dataclass(frozen=True)
class Options:
  """The static options of a decode loop."""

  sampling: sampling_lib.Sampling = sampling_lib.Sampling()
  boundary: int | None = None  # the token that ends a row, if any
  buffer: int = LEAST_BUFFER  # N: the most steps per call


def pad(
  prompts: Sequence[np.ndarray], length: int = 0
) -> tuple[np.ndarray, np.ndarray]:
  """Right-aligns prompts. Returns (tokens_BxL, starts_BxL), int32.

  Args:
    prompts: ids.
    length: L; 0: `padded_length` of the longest.

  Raises:
    ValueError: there are no prompts, or one has no tokens.
  """
  if not prompts or not all(len(prompt) for prompt in prompts):
    raise ValueError('prompts: give one or more, each of a token or more')
  length = length or padded_length(max(len(prompt) for prompt in prompts))
  tokens = np.zeros((len(prompts), length), np.int32)
  starts = np.zeros_like(tokens)
  for row, prompt in enumerate(prompts):
    tokens[row, length - len(prompt) :] = prompt
    # Padding restarts at each step: its positions stay within a table.
    starts[row, : length - len(prompt) + 1] = 1
  return tokens, starts


def padded_length(count: int) -> int:
  """Returns the length L to which `pad` fills up a prompt of `count` ids.

  L - 1 is a multiple of 64, or of more if it is above 512: few lengths, few
  programs to compile.
  """
  multiple = max(PREFILL_MULTIPLE, (1 << (count - 1).bit_length()) // 16)
  return 1 + -(-(count - 1) // multiple) * multiple


def buffer_size(count: int) -> int:
  """Returns a power of 2 >= `count`: few sizes, few programs."""
  return max(LEAST_BUFFER, 1 << (count - 1).bit_length())


@functools.partial(jax.jit, static_argnums=0)
def prefill(
  model: nn.Module,
  params: dict,
  tokens_BxL: jax.Array,
  starts_BxL: jax.Array,
  keys_B: jax.Array,
) -> Carry:
  """Reads prompts from `pad` in one pass."""
  state = model.apply({}, tokens_BxL.shape[0], method='init_state')
  if tokens_BxL.shape[1] > 1:
    # These logits are unused: XLA removes them.
    state, _ = apply(
      model, params, state, tokens_BxL[:, :-1], starts_BxL[:, :-1]
    )
  state, logits = apply(
    model, params, state, tokens_BxL[:, -1:], starts_BxL[:, -1:]
  )
  return Carry(state, logits[:, 0], keys_B, jnp.int32(0))


@functools.partial(jax.jit, static_argnums=(0, 1))
def begin(model: nn.Module, vocabulary: int, keys_B: jax.Array) -> Carry:
  """Returns the carry of rows that have read nothing; `read` is next."""
  B = keys_B.shape[0]
  state = model.apply({}, B, method='init_state')
  return Carry(state, jnp.zeros((B, vocabulary)), keys_B, jnp.int32(0))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def read(
  model: nn.Module,
  params: dict,
  carry: Carry,
  tokens_N: jax.Array,
  count: jax.Array,
) -> Carry:
  """Reads `count` more tokens into the state of one row, step by step."""

  def advance(n, carry):
    state, logits = apply(model, params, carry.state, tokens_N[n][None, None])
    return carry._replace(state=state, logits_BxV=logits[:, 0])

  return jax.lax.fori_loop(0, count, advance, carry)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def step(
  model: nn.Module, params: dict, state: Any, token_B: jax.Array
) -> tuple[Any, jax.Array]:
  """Runs one step. Returns (state, logits_BxV); the old state is donated."""
  state, logits = apply(model, params, state, token_B[:, None])
  return state, logits[:, 0]


def apply(
  model: nn.Module,
  params: dict,
  state: Any,
  tokens_BxL: jax.Array,
  starts_BxL: jax.Array | None = None,
  method: Callable[..., Any] | str = '__call__',
) -> tuple[Any, jax.Array]:
  """Runs a model within a loop: packed parameters stay packed outside it.

  Returns:
    What `method` returns: (state, logits_BxLxV).
  """
  if int8_weights.is_packed(params):
    # Otherwise XLA unpacks them once, before the loop over steps.
    params, state = jax.lax.optimization_barrier((params, state))
    params = int8_weights.unpack(params)
  return model.apply(
    {'params': params}, state, tokens_BxL, starts_BxL, method=method
  )


@jax.jit
def row_keys(seed: jax.Array, rows_B: jax.Array) -> jax.Array:
  """Returns keys_B, a PRNG key per row, from a seed and uint32 row numbers."""
  return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), rows_B)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def decode(
  model: nn.Module,
  options: Options,
  params: dict,
  carry: Carry,
  done_B: jax.Array,
  count: jax.Array,
  least: jax.Array | None = None,
  numbers: sampling_lib.Numbers | None = None,
) -> tuple[Carry, Produced]:
  """Makes up to `count` tokens per row in one loop on the device.

  Args:
    model: the model.
    options: what is fixed at compilation.
    params: its parameters.
    carry: from `prefill` or the previous call; donated.
    done_B: rows that have ended. The loop ends when all have.
    count: steps, at most options.buffer; a scalar.
    least: steps before a row may end; a scalar, or None: 0.
    numbers: of the sampling; None: those of `options.sampling`.

  Returns:
    (carry, the tokens made).
  """
  shape = (done_B.shape[0], options.buffer)
  nothing = Produced(
    jnp.zeros(shape, jnp.int32), jnp.zeros(shape), jnp.int32(0)
  )

  def unfinished(loop):
    _, done_B, produced = loop
    return (produced.made < count) & ~jnp.all(done_B)

  def advance(loop):
    return _advance(model, options, params, least, numbers, *loop)

  loop = jax.lax.while_loop(unfinished, advance, (carry, done_B, nothing))
  return loop[0], loop[2]


def _advance(model, options, params, least, numbers, carry, done_B, produced):
  """Makes one token per row: the body of `decode`."""
  allowed_BxV = carry.logits_BxV
  if least is not None and options.boundary is not None:
    early = jnp.where(produced.made < least, -jnp.inf, 0.0)
    allowed_BxV = allowed_BxV.at[:, options.boundary].add(early)
  keys = jax.vmap(jax.random.fold_in, (0, None))(carry.keys_B, carry.position)
  token_B = sampling_lib.sample(keys, allowed_BxV, options.sampling, numbers)
  logprob_B = _logprob(carry.logits_BxV, token_B)
  if options.boundary is not None:
    done_B = done_B | (token_B == options.boundary)
  state, logits = apply(model, params, carry.state, token_B[:, None])
  put = jax.lax.dynamic_update_slice_in_dim
  produced = Produced(
    put(produced.tokens_BxN, token_B[:, None], produced.made, 1),
    put(produced.logprobs_BxN, logprob_B[:, None], produced.made, 1),
    produced.made + 1,
  )
  carry = Carry(state, logits[:, 0], carry.keys_B, carry.position + 1)
  return carry, done_B, produced


def _logprob(logits_BxV, token_B):
  chosen = jnp.take_along_axis(logits_BxV, token_B[:, None], -1)[:, 0]
  return chosen - jax.nn.logsumexp(logits_BxV, -1)
