"""From prompts to tokens: the step and the loop of all that writes text.

    fresh     a row that has read nothing; `empty`: rows
    prefill   prompts of several lengths, in one pass
    read      more tokens of rows, step by step
    decode    up to `count` new tokens of every row, without a visit to the host

A command's batch (generate.py) and a server's slots (serving/slots.py) run
the same loop; they differ in when they call it, and in the kind of options that
it is compiled for. Prompts are right-aligned in one batch, and `starts` zeroes
each row's state at its first token, so that padding leaves no trace. From then
on only the state is needed, which is constant in size.

Shapes: tokens and starts BxL, logits BxV; new tokens BxN. Any model works that
takes (state, tokens, starts) and returns (state, logits); `inference.layers`
has the fastest form. Parameters may be packed (models/packed_weights.py) and
stay so between steps.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import row_adapters
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.models import packed_weights
from rnn_jax.ops import fixed_order

PREFILL_MULTIPLE = 64
MIN_BUFFER = 16


class Weights(NamedTuple):
  """What a model computes with; of several adapters, of which 0 is none."""

  params: Any
  adapters: row_adapters.Table = {}

  @property
  def models(self) -> int:
    """The number of models: one for each adapter, and the model itself."""
    leaves = jax.tree.leaves(self.adapters)
    return leaves[0].shape[0] if leaves else 1

  @property
  def device(self) -> jax.Device:
    """Where the parameters are."""
    return jax.tree.leaves(self.params)[0].device


class Carry(NamedTuple):
  """What B rows carry from step to step; it is donated."""

  state: Any
  logits_BxV: jax.Array  # of the next token
  position_B: jax.Array  # new tokens so far
  memory: sampler.Memory | None = None  # None: no row has penalties or biases


class Produced(NamedTuple):
  """New tokens of each row: the first `made_B` count. K: the most likely."""

  made_B: jax.Array
  tokens_BxN: jax.Array
  logprobs_BxN: jax.Array  # under the model, whatever the sampling
  best_BxNxK: jax.Array
  best_logprobs_BxNxK: jax.Array


class Options(NamedTuple):
  """What is fixed when a loop is compiled."""

  kind: sampling.Kind
  buffer: int = MIN_BUFFER  # N: the most steps per call


class _Loop(NamedTuple):
  """The loop's own variables."""

  step: jax.Array
  done_B: jax.Array
  carry: Carry
  produced: Produced


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
  return max(MIN_BUFFER, 1 << (count - 1).bit_length())


@functools.partial(jax.jit, static_argnums=0)
def fresh(model: nn.Module) -> tuple[Any, jax.Array]:
  """Returns what one row that has read nothing knows: (state, logits_1xV)."""
  return model.apply({}, 1, method='init_state'), _no_logits(model, 1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def empty(model: nn.Module, B: int) -> Carry:
  """Returns the carry of B rows that have read nothing, with a memory."""
  shape = B, model.vocabulary
  memory = sampler.Memory(
    jnp.zeros(shape, jnp.bool_), jnp.zeros(shape, jnp.int32), jnp.zeros(shape)
  )
  state = model.apply({}, B, method='init_state')
  return Carry(state, _no_logits(model, B), jnp.zeros(B, jnp.int32), memory)


def _no_logits(model, B):
  return jnp.zeros((B, model.vocabulary))


@functools.partial(jax.jit, static_argnums=0)
def prefill(
  model: nn.Module,
  weights: Weights,
  tokens_BxL: jax.Array,
  starts_BxL: jax.Array,
) -> Carry:
  """Reads prompts from `pad` in one pass, without adapters."""
  B, L = tokens_BxL.shape
  state = model.apply({}, B, method='init_state')
  run = functools.partial(apply, model, weights.params)
  if L > 1:
    # These logits are unused: XLA removes them.
    state, _ = run(state, tokens_BxL[:, :-1], starts_BxL[:, :-1])
  state, logits = run(state, tokens_BxL[:, -1:], starts_BxL[:, -1:])
  return Carry(state, logits[:, 0], jnp.zeros(B, jnp.int32))


@functools.partial(jax.jit, static_argnums=0)
def read(
  model: nn.Module,
  weights: Weights,
  state: Any,
  tokens_N: jax.Array,
  count: jax.Array,
  adapter: jax.Array | None = None,
) -> tuple[Any, jax.Array]:
  """Reads `count` tokens into the state of one row, step by step.

  Returns:
    (state, logits_1xV).
  """
  run = stepping(model, weights, None if adapter is None else adapter[None])

  def advance(n, carry):
    return run(carry[0], tokens_N[n][None])

  begin = state, _no_logits(model, 1)
  return jax.lax.fori_loop(0, count, advance, begin)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def step(
  model: nn.Module, params: dict, state: Any, token_B: jax.Array
) -> tuple[Any, jax.Array]:
  """Runs one step. Returns (state, logits_BxV); the old state is donated."""
  return stepping(model, Weights(params))(state, token_B)


def stepping(
  model: nn.Module, weights: Weights, adapter_B: jax.Array | None = None
) -> Callable[[Any, jax.Array], tuple[Any, jax.Array]]:
  """Returns (state, token_B) -> (state, logits_BxV), rows with adapters.

  Args:
    model: the model.
    weights: what it computes with.
    adapter_B: the adapter of each row; needed if there are any.
  """
  own = {}
  if weights.adapters:
    own = row_adapters.take(weights.adapters, adapter_B)

  def run(state, token_B):
    with row_adapters.applied(own):
      state, logits_BxLxV = apply(
        model, weights.params, state, token_B[:, None], alike=not own
      )
    return state, logits_BxLxV[:, 0]

  return run


def apply(
  model: nn.Module,
  params: dict,
  state: Any,
  tokens_BxL: jax.Array,
  starts_BxL: jax.Array | None = None,
  method: Callable[..., Any] | str = '__call__',
  alike: bool = True,
  stepwise: bool = False,
) -> tuple[Any, jax.Array]:
  """Runs a model within a loop: packed parameters stay packed outside it.

  Args:
    model: the model.
    params: its parameters.
    state: of its rows.
    tokens_BxL: what they read.
    starts_BxL: where documents begin; None: nowhere.
    method: of the model.
    alike: see packed_weights.multiplying.
    stepwise: whether several tokens are computed in the order of single steps,
      where matrices are packed.

  Returns:
    What `method` returns: (state, logits_BxLxV).
  """
  inputs = state, tokens_BxL, starts_BxL
  if not packed_weights.is_packed(params):
    return model.apply({'params': params}, *inputs, method=method)
  # Otherwise XLA unpacks some of them once, before the loop over steps.
  params, state = jax.lax.optimization_barrier((params, state))
  whole = packed_weights.unpack(params)  # XLA drops what nobody reads
  run = functools.partial(model.apply, {'params': whole}, method=method)
  inputs = state, tokens_BxL, starts_BxL
  with packed_weights.multiplying(params, alike and not stepwise):
    if tokens_BxL.shape[1] > 1 and not stepwise:
      return run(*inputs)
    return fixed_order.evaluate(run, *inputs, rows=len(tokens_BxL))


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def decode(
  model: nn.Module,
  options: Options,
  weights: Weights,
  carry: Carry,
  packed: sampling.Packed,
  count: jax.Array,
  allowed_BxM: jax.Array | None = None,
) -> tuple[Carry, Produced]:
  """Makes up to `count` tokens of each active row in one loop on the device.

  A row ends with its boundary or at its limit; the loop ends when all have.

  Args:
    model: the model.
    options: what is fixed at compilation.
    weights: what the model computes with.
    carry: from `prefill` or the previous call; donated.
    packed: the options of the rows, which `options.kind` covers.
    count: steps, at most options.buffer; a scalar.
    allowed_BxM: what constrained rows may choose, see sampler.py; None: no row
      is constrained.

  Returns:
    (carry, the tokens made).
  """
  rows = sampling.unpack(packed)
  run = stepping(model, weights, rows.adapter_B)
  keys_B = sampler.keys(rows)
  produced = nothing(len(keys_B), options)

  def unfinished(loop):
    return (loop.step < count) & ~jnp.all(loop.done_B)

  def advance(loop):
    return _advance(run, options.kind, rows, keys_B, allowed_BxM, loop)

  loop = _Loop(jnp.int32(0), ~rows.active_B, carry, produced)
  loop = jax.lax.while_loop(unfinished, advance, loop)
  return loop.carry, loop.produced


def nothing(B: int, options: Options) -> Produced:
  """Returns room for the tokens of B rows."""
  N, K = options.buffer, options.kind.alternatives
  return Produced(
    jnp.zeros(B, jnp.int32),
    jnp.zeros((B, N), jnp.int32),
    jnp.zeros((B, N)),
    jnp.zeros((B, N, K), jnp.int32),
    jnp.zeros((B, N, K)),
  )


def _advance(run, kind, rows, keys_B, allowed_BxM, loop):
  """Makes one token of each row: the body of `decode`."""
  state, logits_BxV, position_B, memory = loop.carry
  given = keys_B, logits_BxV, position_B
  token_B = choose(kind, rows, *given, memory, allowed_BxM)
  made = token_B, *sampler.logprobs(logits_BxV, token_B, rows, kind)
  state, logits_BxV = run(state, token_B)

  def put(buffer, x):
    return jax.lax.dynamic_update_slice_in_dim(buffer, x[:, None], loop.step, 1)

  buffers = map(put, loop.produced[1:], made)
  produced = Produced(loop.produced.made_B + ~loop.done_B, *buffers)
  position_B = position_B + 1
  if memory is not None:
    memory = memory.counting(token_B)
  ended_B = (token_B == rows.boundary_B) | (position_B >= rows.limit_B)
  carry = Carry(state, logits_BxV, position_B, memory)
  return _Loop(loop.step + 1, loop.done_B | ended_B, carry, produced)


def choose(
  kind: sampling.Kind,
  rows: sampling.Rows,
  keys_B: jax.Array,
  logits_BxV: jax.Array,
  position_B: jax.Array,
  memory: sampler.Memory | None = None,
  allowed_BxM: jax.Array | None = None,
) -> jax.Array:
  """Returns token_B, which each row chooses at a place of its text.

  Args:
    kind: what the rows' options may be.
    rows: their options.
    keys_B: from `sampler.keys`.
    logits_BxV: of the model.
    position_B: the place: new tokens before it.
    memory: as of sampler.adjust.
    allowed_BxM: the same.
  """
  keys_B = jax.vmap(jax.random.fold_in)(keys_B, position_B)

  def draw(keys_B, z_BxV, *others):
    if kind.adjusts:
      z_BxV = sampler.adjust(z_BxV, rows, *others)
    return sampler.choose(keys_B, z_BxV, rows, kind)

  given = keys_B, logits_BxV, position_B, memory, allowed_BxM
  return fixed_order.evaluate(draw, *given, rows=len(logits_BxV))
