"""The model that an engine serves: its digest, and what it can be asked.

With adapters it is several models, one for each, which share parameters; each
has a digest of its own, and so no state of one is ever read by another.
"""

import copy
import dataclasses
import hashlib
from collections.abc import Mapping

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import decode
from rnn_jax.inference import generate
from rnn_jax.inference import row_adapters
from rnn_jax.models import packed_weights
from rnn_jax.runs import adapter as adapter_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import constraint
from rnn_jax.serving import states

Adapters = Mapping[str, adapter_lib.Adapter]


class Served:
  """A model, or one of its adapters.

  Attributes:
    weights: the parameters, and the adapters of all.
    adapter: which of them it is; 0: the model itself.
    names: of the adapters; the first is adapter 1.
    network: the model, in the form for inference.
    tokenizer: the model's.
    prompts: how its prompts become ids.
    digest: of all that its numbers follow from, in hexadecimal.
    root: the key of the state before any text (reading.py).
    grammars: makes the matchers of constraints.
  """

  def __init__(
    self,
    source: bundle_lib.Bundle | generate.Generator,
    formats: tuple[str, str],
    chunks: tuple[int, ...],
    adapters: Adapters,
  ) -> None:
    """Takes a bundle, or a generator whose weights and states are as they are.

    Args:
      source: of the model.
      formats: of a bundle's weights and states.
      chunks: lengths in which prompts are read.
      adapters: of the model, by name.

    Raises:
      InputError: the model or an adapter doesn't write text, or a format is
        unknown.
    """
    weights, states_format = formats
    if not isinstance(source, generate.Generator):
      source = generate.Generator.from_bundle(
        source, weights, states=states_format
      )
    self.network = model = source.model
    self.tokenizer = source.tokenizer
    self.prompts = source.prompts
    facts = (model.config, model.cell_config, model.policy)
    spec = repr(sorted(self.tokenizer.spec().items()))
    self.digest = states.digest(source.params, *map(repr, facts), spec)
    self.root = _root(self.digest, chunks)
    self.grammars = constraint.Grammars(self.tokenizer)
    blank = jax.eval_shape(lambda: decode.fresh(model))
    self._state_shapes = [(x.shape, x.dtype) for x in jax.tree.leaves(blank)]
    held = {'float32', *packed_weights.formats(source.params)}
    for name, adapter in adapters.items():
      generate.check_writes(adapter.config)
      base = adapter.config.adapters.base
      if base not in held:
        errors.refuse(
          'weights',
          weights,
          f'{name!r} was trained with adapters.base={base!r}: give {base!r}',
        )
    table = row_adapters.make_table([*adapters.values()])
    row_adapters.check(model, source.params, table)
    # So that a step's rows don't depend on their number.
    params = packed_weights.pack_to_serve(
      source.params, 'float32', batch_invariant=True
    )
    self.weights = decode.Weights(params, jax.device_put(table))
    self.adapter = 0
    self.names = (*adapters,)
    self._all = {'': self}  # those that share parameters, by name
    for number, (name, adapter) in enumerate(adapters.items(), 1):
      self._all[name] = self._adapt(number, adapter, chunks)

  def _adapt(self, number, adapter, chunks):
    """Returns the model with an adapter."""
    own = copy.copy(self)
    asks = adapter.config.task.answers
    own.prompts = dataclasses.replace(self.prompts, asks=asks)
    options = adapter.config.adapters
    scale = repr((options.rank, options.alpha))
    own.digest = states.digest(adapter.changes, self.digest, scale)
    own.root = _root(own.digest, chunks)
    own.adapter = number
    return own

  def of(self, name: str) -> 'Served':
    """Returns an adapter by its name, or the model itself: ''.

    Raises:
      InputError: there is no such adapter.
    """
    if name not in self._all:
      errors.refuse('adapter', name, f'give one of {self.names}')
    return self._all[name]

  def name_of(self, digest: str) -> str | None:
    """Returns the name of a digest's adapter, '' of the model, None of none."""
    each = self._all.items()
    return next((name for name, own in each if own.digest == digest), None)

  @property
  def segment_end(self) -> int | None:
    """The token that ends a segment of a text, or None."""
    return self.tokenizer.boundary if self.prompts.asks else None

  def load_state(self, data: bytes, key: bytes) -> states.State:
    """Returns the state of bytes from `states.dump`.

    Raises:
      InputError: they are damaged, signed with another key, or of another
        model.
    """
    state = states.load(data, key)
    self.check_state(state)
    return state

  def check_state(self, state: states.State) -> None:
    """Checks that a state is this model's.

    Raises:
      InputError: it isn't.
    """
    if state.model != self.digest:
      name = self.name_of(state.model)
      remedy = 'read the text again'
      if name is not None:
        remedy = f'it is that of {name!r}' if name else 'it has no adapter'
        remedy += ': ask that one, or read the text again'
      raise errors.InputError(
        f'state of model {state.model[:12]}: this is model '
        f'{self.digest[:12]}: {remedy}'
      )
    leaves = *state.leaves, state.logits_1xV
    if [(x.shape, x.dtype) for x in leaves] != self._state_shapes:
      raise errors.InputError(
        'state: its arrays have other shapes than the model: read the text '
        'again'
      )

  def blank_state(self) -> states.State:
    """Returns a state of the size that all states have."""
    *leaves, logits = (np.zeros(*each) for each in self._state_shapes)
    text = '0' * len(self.digest)
    return states.State(self.digest, text, 0, False, tuple(leaves), logits)

  def check_reload(self, new: 'Served') -> None:
    """Checks that another model differs only in the parameters' values.

    Raises:
      InputError: it doesn't.
    """
    shapes = [
      jax.tree.map(lambda x: (x.shape, x.dtype), each.weights)
      for each in (self, new)
    ]
    same = shapes[0] == shapes[1]
    same &= new.network == self.network
    same &= new.names == self.names
    same &= all(
      new.of(name).prompts.asks == self.of(name).prompts.asks
      for name in ('', *self.names)
      if same
    )
    if not same or new.tokenizer.spec() != self.tokenizer.spec():
      raise errors.InputError(
        'reload: the model differs from the one that is served in more than '
        'its parameters: start another engine'
      )


def _root(digest, chunks):
  # Other chunks make other bits of the same text.
  return hashlib.sha256(f'{digest} {chunks}'.encode()).digest()
