"""The programs of a serving engine, all compiled before the first request.

    place    one row's state and logits -> a slot
    decode   up to `count` tokens of every slot, without a visit to the host
    read     a chunk of fixed length, or up to that many single steps, one row

With adapters (inference/row_adapters.py) a row has the number of its own. Steps
add what it adds; a chunk is read with the matrices summed for it.

The shapes are fixed: B slots in `place` and `decode`, one row in the others.
XLA computes each row of a matmul from that row only, in an order that follows
from the shapes. So a row's numbers depend on the number of slots, and on
nothing in other slots; `Slots.check` compares them where the model serves.
"""

import functools
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import decode as decode_lib
from rnn_jax.inference import row_adapters
from rnn_jax.models import int8_weights
from rnn_jax.serving import sampler

PyTree = Any


class Weights(NamedTuple):
  """What a model computes with; of several adapters, of which 0 is none."""

  params: PyTree
  adapters: row_adapters.Table

  @property
  def models(self) -> int:
    """The number of models: one for each adapter, and the model itself."""
    leaves = jax.tree.leaves(self.adapters)
    return leaves[0].shape[0] if leaves else 1


class Carry(NamedTuple):
  """What B rows carry from step to step; it is donated."""

  state: PyTree
  logits_BxV: jax.Array  # of the next token
  position_B: jax.Array  # new tokens so far
  memory: sampler.Memory


class Row(NamedTuple):
  """What enters a slot."""

  state: PyTree  # of one row
  logits_1xV: jax.Array
  prompt_V: np.ndarray | jax.Array  # which tokens the prompt has
  bias_V: np.ndarray | jax.Array


class Produced(NamedTuple):
  """New tokens of each row: the first `made_B` ones count. K: the likeliest."""

  made_B: jax.Array
  tokens_BxN: jax.Array
  logprobs_BxN: jax.Array
  likeliest_BxNxK: jax.Array
  likeliest_logprobs_BxNxK: jax.Array


class Loop(NamedTuple):
  """The loop's own variables."""

  step: jax.Array
  done_B: jax.Array
  state: PyTree
  logits_BxV: jax.Array
  position_B: jax.Array
  count_BxV: jax.Array
  produced: Produced


class Programs:
  """A model's programs for `slots` rows, `steps` per call and chunk `sizes`.

  Attributes:
    compiled: how many programs were compiled.
    sizes, slots, steps: as given.
    models: how many there are, see Weights.
    fresh: the state of a row that has read nothing, on the device.
  """

  def __init__(
    self,
    model: nn.Module,
    weights: Weights,
    slots: int,
    steps: int,
    sizes: tuple[int, ...],
  ) -> None:
    """Compiles the programs for weights like these.

    Raises:
      InputError: an adapter changes what rows must share.
    """
    row_adapters.check(model, weights.params, weights.adapters)
    self.compiled = 0
    self.sizes = sizes
    self.slots = slots
    self.steps = steps
    self.vocabulary = model.vocabulary
    self.models = weights.models
    self.device = jax.tree.leaves(weights.params)[0].device
    self.fresh = self._compile(_fresh, model)()
    self._empty = self._compile(_empty, model, slots)
    empty = jax.eval_shape(functools.partial(_empty, model, slots))
    slot = jax.ShapeDtypeStruct((), jnp.int32)
    self._place = self._compile(_place, empty, slot, self._row_like())
    allowed = jax.ShapeDtypeStruct(
      (slots, sampler.words(self.vocabulary)), jnp.uint32
    )
    rows = sampler.pack(sampler.make_table(slots))
    self._decode = self._compile(
      _decode, model, steps, weights, empty, rows, allowed, slot
    )
    self._read = {
      size: self._compile(
        _read, model, weights, self.fresh, _ids((1, size)), slot
      )
      for size in sizes
    }
    self._steps = self._compile(
      _steps, model, weights, self.fresh, _ids((sizes[0],)), slot, slot
    )
    most = max(slots, steps + 1, sizes[0], weights.models)
    self._numbers = [
      jax.device_put(np.int32(n), self.device) for n in range(most)
    ]
    self.none_V = jax.device_put(np.zeros(self.vocabulary, bool), self.device)
    self.zeros_V = jax.device_put(
      np.zeros(self.vocabulary, np.float32), self.device
    )
    self.no_logits = jax.device_put(
      np.zeros((1, self.vocabulary), np.float32), self.device
    )

  def empty(self) -> Carry:
    """Returns slots without requests."""
    return self._empty()

  def place(self, slots: Carry, slot: int, row: Row) -> Carry:
    """Returns the slots with `row` in one of them; `slots` is donated."""
    return self._place(slots, self._numbers[slot], row)

  def decode(
    self,
    weights: Weights,
    slots: Carry,
    rows: sampler.Packed,
    allowed_BxM: jax.Array,
    count: int,
  ) -> tuple[Carry, Produced]:
    """Makes up to `count` tokens of each active row; `slots` is donated."""
    number = self._numbers[count]
    return self._decode(weights, slots, rows, allowed_BxM, number)

  def read(
    self, weights: Weights, state: PyTree, tokens: np.ndarray, adapter: int = 0
  ) -> tuple[PyTree, jax.Array]:
    """Reads a chunk with an adapter. Returns (state, logits_1xV)."""
    own = self._numbers[adapter]
    if len(tokens) in self._read:
      read = self._read[len(tokens)]
      tokens = jax.device_put(tokens[None], self.device)
      return read(weights, state, tokens, own)
    filled = np.zeros(self.sizes[0], np.int32)
    filled[: len(tokens)] = tokens
    filled = jax.device_put(filled, self.device)
    number = self._numbers[len(tokens)]
    return self._steps(weights, state, filled, number, own)

  def _row_like(self):
    logits = jax.ShapeDtypeStruct((1, self.vocabulary), jnp.float32)
    prompt = jax.ShapeDtypeStruct((self.vocabulary,), jnp.bool_)
    bias = jax.ShapeDtypeStruct((self.vocabulary,), jnp.float32)
    return Row(self.fresh, logits, prompt, bias)

  def _compile(self, function, *arguments):
    compiled = function.lower(*arguments).compile()
    self.compiled += 1
    return compiled


def _ids(shape):
  return jax.ShapeDtypeStruct(shape, jnp.int32)


@functools.partial(jax.jit, static_argnums=0)
def _fresh(model):
  return model.apply({}, 1, method='init_state')


@functools.partial(jax.jit, static_argnums=(0, 1))
def _empty(model, B):
  V = model.vocabulary
  memory = sampler.Memory(
    jnp.zeros((B, V), jnp.bool_),
    jnp.zeros((B, V), jnp.int32),
    jnp.zeros((B, V)),
  )
  state = model.apply({}, B, method='init_state')
  return Carry(state, jnp.zeros((B, V)), jnp.zeros(B, jnp.int32), memory)


@functools.partial(jax.jit, donate_argnums=0)
def _place(slots, slot, row):
  def put(all_rows, one):
    one = one.astype(all_rows.dtype)
    return jax.lax.dynamic_update_slice_in_dim(all_rows, one, slot, 0)

  memory = slots.memory
  V = row.bias_V.shape[0]
  memory = sampler.Memory(
    put(memory.prompt_BxV, row.prompt_V[None]),
    put(memory.count_BxV, jnp.zeros((1, V), jnp.int32)),
    put(memory.bias_BxV, row.bias_V[None]),
  )
  return Carry(
    jax.tree.map(put, slots.state, row.state),
    put(slots.logits_BxV, row.logits_1xV),
    put(slots.position_B, jnp.zeros(1, jnp.int32)),
    memory,
  )


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _decode(model, steps, weights, slots, packed, allowed_BxM, count):
  B, V = slots.logits_BxV.shape
  K = min(sampler.ALTERNATIVES, V)
  nothing = Produced(
    jnp.zeros(B, jnp.int32),
    jnp.zeros((B, steps), jnp.int32),
    jnp.zeros((B, steps)),
    jnp.zeros((B, steps, K), jnp.int32),
    jnp.zeros((B, steps, K)),
  )
  rows = sampler.unpack(packed)
  keys_B = sampler.keys(rows)
  step = _stepping(model, weights, rows.adapter_B)
  memory = slots.memory
  loop = Loop(
    jnp.int32(0),
    ~rows.active_B,
    slots.state,
    slots.logits_BxV,
    slots.position_B,
    memory.count_BxV,
    nothing,
  )

  def unfinished(loop):
    return (loop.step < count) & ~jnp.all(loop.done_B)

  def advance(loop):
    known = memory._replace(count_BxV=loop.count_BxV)
    return _advance(step, rows, keys_B, known, allowed_BxM, loop)

  loop = jax.lax.while_loop(unfinished, advance, loop)
  memory = memory._replace(count_BxV=loop.count_BxV)
  slots = Carry(loop.state, loop.logits_BxV, loop.position_B, memory)
  return slots, loop.produced


def _stepping(model, weights, adapter_B):
  """Returns (state, token_B) -> (state, logits_BxV), rows with adapters."""
  own = row_adapters.take(weights.adapters, adapter_B)

  def step(state, token_B):
    with row_adapters.applied(own):
      state, logits_BxLxV = decode_lib.apply(
        model, weights.params, state, token_B[:, None]
      )
    return state, logits_BxLxV[:, 0]

  return step


def _advance(step, rows, keys_B, memory, allowed_BxM, loop):
  """Makes one token of each row: the body of `decode`."""
  z_BxV = sampler.adjust(
    loop.logits_BxV, rows, loop.position_B, memory, allowed_BxM
  )
  keys_B = jax.vmap(jax.random.fold_in)(keys_B, loop.position_B)
  token_B = sampler.choose(keys_B, z_BxV, rows)
  logprob_B, best_BxK, best_logprob_BxK = sampler.logprobs(
    loop.logits_BxV, token_B, rows
  )
  state, logits_BxV = step(loop.state, token_B)
  produced = loop.produced

  def put(buffer, x):
    return jax.lax.dynamic_update_slice_in_dim(buffer, x[:, None], loop.step, 1)

  produced = Produced(
    produced.made_B + ~loop.done_B,
    put(produced.tokens_BxN, token_B),
    put(produced.logprobs_BxN, logprob_B),
    put(produced.likeliest_BxNxK, best_BxK),
    put(produced.likeliest_logprobs_BxNxK, best_logprob_BxK),
  )
  position_B = loop.position_B + 1
  ended_B = (token_B == rows.boundary_B) | (position_B >= rows.limit_B)
  return Loop(
    loop.step + 1,
    loop.done_B | ended_B,
    state,
    logits_BxV,
    position_B,
    loop.count_BxV.at[jnp.arange(len(token_B)), token_B].add(1),
    produced,
  )


@functools.partial(jax.jit, static_argnums=0)
def _read(model, weights, state, tokens_1xL, adapter):
  params = weights.params
  if weights.adapters:
    own = row_adapters.take(weights.adapters, adapter)
    params = row_adapters.merged(int8_weights.unpack(params), own)
  state, logits_1x1xV = decode_lib.apply(
    model, params, state, tokens_1xL, method=_last_logits
  )
  return state, logits_1x1xV[:, 0]


def _last_logits(model, state, tokens_BxL, starts_BxL):
  """Runs a model whose logits are needed only after the last token."""
  state, x = model.hidden(state, tokens_BxL, starts_BxL)
  return state, model.logits(model.normalize(x[:, -1:]))


@functools.partial(jax.jit, static_argnums=0)
def _steps(model, weights, state, tokens_N, count, adapter):
  step = _stepping(model, weights, adapter[None])

  def advance(n, carry):
    state, _ = carry
    return step(state, tokens_N[n][None])

  nothing = jnp.zeros((1, model.vocabulary))
  return jax.lax.fori_loop(0, count, advance, (state, nothing))
