"""The model that an engine serves: its digest, and what it can be asked."""

import hashlib
from collections.abc import Sequence

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import turns
from rnn_jax.inference import generate
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import constraint
from rnn_jax.serving import requests
from rnn_jax.serving import states
from rnn_jax.serving import work


class Served:
  """A model.

  Attributes:
    generator: the model and its tokenizer, as inference/generate.py has them.
    digest: of all that its numbers follow from, in hexadecimal.
    root: the key of the state before any text (reading.py).
    grammars: makes the matchers of constraints.
    pieces: the bytes of its tokens.
  """

  def __init__(
    self,
    source: bundle_lib.Bundle | generate.Generator,
    weights: str,
    chunks: tuple[int, ...],
  ) -> None:
    """Takes a bundle, or a generator whose weights are as they are.

    Raises:
      InputError: the model doesn't write text, or `weights` is unknown.
    """
    if not isinstance(source, generate.Generator):
      source = generate.Generator.from_bundle(source, weights)
    self.generator = source
    model = source.model
    facts = (model.config, model.cell_config, model.policy)
    spec = repr(sorted(self.tokenizer.spec().items()))
    self.digest = states.digest(source.params, *map(repr, facts), spec)
    # Other chunks make other bits of the same text.
    self.root = hashlib.sha256(f'{self.digest} {chunks}'.encode()).digest()
    self.grammars = constraint.Grammars(self.tokenizer)
    self.pieces = work.Pieces(self.tokenizer)
    leaves = jax.eval_shape(lambda: model.apply({}, 1, method='init_state'))
    shapes = [(x.shape, x.dtype) for x in jax.tree.leaves(leaves)]
    self._state_shapes = [*shapes, ((1, self.tokenizer.size), np.float32)]

  @property
  def tokenizer(self) -> tokenizer_lib.Tokenizer:
    """The model's."""
    return self.generator.tokenizer

  @property
  def segment_end(self) -> int | None:
    """The token that ends a segment of a text, or None."""
    return self.tokenizer.boundary if self.generator.asks else None

  def encode(self, request: requests.Request) -> np.ndarray:
    """Returns the ids that are read for a request, after its state.

    Raises:
      InputError: the model can't serve it.
    """
    state = request.state
    if state is None:
      ids = self.generator.encode(request.prompt, request.continues)
      if not len(ids):
        errors.refuse('prompt', request.prompt, 'there is nothing to read')
    else:
      self.check_state(state)
      ids = self._encode_after(state, request.prompt)
    self._check_ids(ids)
    before = state.count if state is not None else 0
    # A request that only reads makes no token.
    new = max(request.max_new_tokens, 1)
    self.generator.check_positions(before + len(ids), new)
    for token in request.sampling.logit_bias:
      if not 0 <= token < self.tokenizer.size:
        errors.refuse(
          'logit_bias', token, f'give tokens 0 to {self.tokenizer.size - 1}'
        )
    return ids.astype(np.int32)

  def _encode_after(self, state, prompt):
    if isinstance(prompt, np.ndarray):
      return prompt
    ids = self.tokenizer.encode(prompt)
    if not self.generator.asks or not len(ids):
      return ids
    said = [turns.Message(turns.USER, prompt)]
    return self.generator.framing.prompt(said, state.ended)

  def _check_ids(self, ids):
    size = self.tokenizer.size
    whole = ids.dtype.kind in 'iu' or not len(ids)
    if ids.ndim != 1 or not whole:
      errors.refuse(
        'prompt', f'{ids.dtype}{list(ids.shape)}', 'give whole numbers, 1-D'
      )
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
      wrong = ids.min() if ids.min() < 0 else ids.max()
      errors.refuse('prompt', int(wrong), f'give ids from 0 to {size - 1}')

  def encode_turns(
    self,
    messages: Sequence[turns.Message],
    ended: bool | None = None,
    reply: bool = True,
  ) -> np.ndarray:
    """Returns the ids of turns, framed as in training.

    Args:
      messages: the turns.
      ended: whether the state that they follow has ended; None: they begin a
        conversation.
      reply: whether the next turn is the model's; False: others may follow.

    Raises:
      InputError: the model wasn't trained on turns, a turn is empty, the
        vocabulary doesn't cover one, or the chat template refuses them.
    """
    self.generator.check_asks()
    framing = self.generator.framing
    return framing.prompt(framing.cleaned(messages), ended, reply)

  def check_state(self, state: states.State) -> None:
    """Checks that a state is this model's.

    Raises:
      InputError: it isn't.
    """
    if state.model != self.digest:
      raise errors.InputError(
        f'state of model {state.model[:12]}: this is model '
        f'{self.digest[:12]}: read the text again'
      )
    leaves = *state.leaves, state.logits_1xV
    if [(x.shape, x.dtype) for x in leaves] != self._state_shapes:
      raise errors.InputError(
        'state: its arrays have other shapes than the model: read the text '
        'again'
      )

  def check_reload(self, new: 'Served') -> None:
    """Checks that another model differs only in the parameters' values.

    Raises:
      InputError: it doesn't.
    """
    shapes = [
      jax.tree.map(lambda x: (x.shape, x.dtype), each.generator.params)
      for each in (self, new)
    ]
    same = shapes[0] == shapes[1]
    same &= new.generator.model == self.generator.model
    same &= new.generator.asks == self.generator.asks
    if not same or new.tokenizer.spec() != self.tokenizer.spec():
      raise errors.InputError(
        'reload: the model differs from the one that is served in more than '
        'its parameters: start another engine'
      )
