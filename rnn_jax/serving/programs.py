"""The programs of a serving engine, all compiled before the first request.

    place    one row's state and logits -> a slot
    decode   up to `count` tokens of every slot, without a visit to the host
    read     a chunk of fixed length, or up to that many single steps, one row

Steps and tokens are made by inference/decode.py.

With adapters (inference/row_adapters.py) a row has the number of its own. Steps
add what it adds; a chunk is read with the matrices summed for it.

The shapes are fixed: B slots in `place` and `decode`, one row in the others.
XLA computes each row of a matmul from that row only, in an order that follows
from the shapes. So a row's numbers depend on the number of slots, and on
nothing in other slots; `Slots.check` compares them where the model serves.
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import decode as decode_lib
from rnn_jax.inference import row_adapters
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.models import int8_weights

PyTree = Any


class Programs:
  """A model's programs for `slots` rows, `steps` per call and chunk `sizes`.

  Attributes:
    compiled: how many programs were compiled.
    sizes, slots, steps: as given.
    models: how many there are, see decode.Weights.
    blank: the carry of one row that has read nothing, on the device.
  """

  def __init__(
    self,
    model: nn.Module,
    weights: decode_lib.Weights,
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
    self.blank = self._compile(_empty, model, 1)()
    self._empty = self._compile(_empty, model, slots)
    empty = jax.eval_shape(functools.partial(_empty, model, slots))
    slot = jax.ShapeDtypeStruct((), jnp.int32)
    self._place = self._compile(_place, empty, slot, self.blank)
    allowed = jax.ShapeDtypeStruct(
      (slots, sampler.words(self.vocabulary)), jnp.uint32
    )
    rows = sampling.pack(sampling.make_table(slots))
    options = decode_lib.Options(sampling.any_kind(self.vocabulary), steps)
    self._decode = self._compile(
      decode_lib.decode, model, options, weights, empty, rows, slot, allowed
    )
    self._read = {
      size: self._compile(
        _read, model, weights, self.blank.state, _ids((1, size)), slot
      )
      for size in sizes
    }
    self._steps = self._compile(
      decode_lib.read,
      model,
      weights,
      self.blank.state,
      _ids((sizes[0],)),
      slot,
      slot,
    )
    most = max(slots, steps + 1, sizes[0], weights.models)
    self._numbers = [
      jax.device_put(np.int32(n), self.device) for n in range(most)
    ]

  def empty(self) -> decode_lib.Carry:
    """Returns slots without requests."""
    return self._empty()

  def place(
    self, slots: decode_lib.Carry, slot: int, row: decode_lib.Carry
  ) -> decode_lib.Carry:
    """Returns the slots with `row` in one of them; `slots` is donated."""
    return self._place(slots, self._numbers[slot], row)

  def decode(
    self,
    weights: decode_lib.Weights,
    slots: decode_lib.Carry,
    rows: sampling.Packed,
    allowed_BxM: jax.Array,
    count: int,
  ) -> tuple[decode_lib.Carry, decode_lib.Produced]:
    """Makes up to `count` tokens of each active row; `slots` is donated."""
    number = self._numbers[count]
    return self._decode(weights, slots, rows, number, allowed_BxM)

  def read(
    self,
    weights: decode_lib.Weights,
    state: PyTree,
    tokens: np.ndarray,
    adapter: int = 0,
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

  def _compile(self, function, *arguments):
    compiled = function.lower(*arguments).compile()
    self.compiled += 1
    return compiled


def _ids(shape):
  return jax.ShapeDtypeStruct(shape, jnp.int32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _empty(model, B):
  return decode_lib.empty(model, B, remembers=True)


@functools.partial(jax.jit, donate_argnums=0)
def _place(slots, slot, row):
  def put(all_rows, one):
    one = one.astype(all_rows.dtype)
    return jax.lax.dynamic_update_slice_in_dim(all_rows, one, slot, 0)

  return jax.tree.map(put, slots, row)


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
