"""Prompts as ids: framed as in training, and checked against the model.

    prompts = Prompts(tokenizer, turns.of(tokenizer), asks=False, longest=0)
    ids = prompts.encode('def main(')
    prompts.check(ids, options)

A command, a server and an engine all encode a prompt here, once, and check its
ids here, once; afterwards a prompt is ids.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from rnn_jax import errors
from rnn_jax.data.tables import lines as lines_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import turns
from rnn_jax.inference import text as text_lib
from rnn_jax.system import standard_input


@dataclasses.dataclass(frozen=True)
class Prompts:
  """How a model's prompts become ids.

  Attributes:
    tokenizer: the model's.
    framing: how turns are framed as ids.
    asks: whether the model was trained on questions and answers, framed as
      turns, so that a prompt is a question.
    longest: how many tokens learned positions allow; 0: any number.
  """

  tokenizer: tokenizer_lib.Tokenizer
  framing: turns.Framing
  asks: bool
  longest: int

  @property
  def beginning(self) -> np.ndarray:
    """The ids that a text begins with, before its own."""
    if self.asks:
      return self.framing.begin
    return np.array([self.tokenizer.boundary], np.int32)

  def encode(
    self,
    prompt: str | np.ndarray,
    continues: bool = False,
    ended: bool | None = None,
  ) -> np.ndarray:
    """Returns the ids that the model reads for a prompt.

    Args:
      prompt: a text, or ids, which are returned as they are.
      continues: whether it is within a document, not at its start.
      ended: whether the state that it follows has ended; None: it follows none.

    Raises:
      InputError: the vocabulary doesn't cover it, or it can't be continued.
    """
    if isinstance(prompt, np.ndarray):
      return prompt
    if self.asks and continues:
      errors.refuse(
        'continues', True, 'a prompt is a whole question: leave it out'
      )
    if self.asks and (prompt or ended is None):
      said = [turns.Message(turns.USER, prompt)]
      return self.framing.prompt(said, ended)
    ids = self.tokenizer.encode(prompt)
    if ended is None and not continues:
      return np.concatenate([[self.tokenizer.boundary], ids])
    return ids

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
      InputError: the model wasn't trained on turns, the vocabulary doesn't
        cover one, or the chat template refuses them.
    """
    self.check_asks()
    return self.framing.prompt(self.framing.cleaned(messages), ended, reply)

  def check_asks(self) -> None:
    """Checks that the model was trained on turns.

    Raises:
      InputError: it wasn't.
    """
    if not self.asks:
      raise errors.InputError(
        "the run's model wasn't trained on turns: train one with "
        "task.name='dialogue'"
      )

  def check(
    self, ids: np.ndarray, options: text_lib.Options, before: int | None = None
  ) -> None:
    """Checks that the model can read ids and continue them in this way.

    Args:
      ids: of a prompt.
      options: how it is continued.
      before: how many tokens the state that they follow has read; None: they
        follow none.

    Raises:
      InputError: it can't; names the argument.
    """
    self._check_ids(ids, before is not None)
    new, read = options.max_new_tokens, (before or 0) + len(ids)
    # A request that only reads makes no token.
    if self.longest and read + max(new, 1) - 1 > self.longest:
      errors.refuse(
        'max_new_tokens',
        new,
        f'after {read} tokens, the model has learned positions for only '
        f'{max(self.longest + 1 - read, 0)} more',
      )
    size = self.tokenizer.size
    for token in options.sampling.logit_bias:
      if not 0 <= token < size:
        errors.refuse('logit_bias', token, f'give tokens 0 to {size - 1}')

  def _check_ids(self, ids, may_be_empty):
    size = self.tokenizer.size
    if ids.ndim != 1 or ids.dtype.kind not in 'iu' and len(ids):
      errors.refuse(
        'prompt', f'{ids.dtype}{list(ids.shape)}', 'give whole numbers, 1-D'
      )
    if not len(ids) and not may_be_empty:
      errors.refuse('prompt', '', 'there is nothing to read or continue')
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
      wrong = ids.min() if ids.min() < 0 else ids.max()
      errors.refuse('prompt', int(wrong), f'give ids from 0 to {size - 1}')


def read(path: str) -> list[str]:
  """Returns the prompts of a file, one a line; of '-', of standard input.

  Raises:
    InputError: it can't be read, isn't text, or a line is empty.
  """
  where = f'prompts_file={path!r}'
  try:
    with standard_input.as_file(path) as name:
      content = pathlib.Path(name).read_bytes()
  except OSError as error:
    raise errors.InputError(f'{where}: {error.strerror}') from error
  lines_lib.check_kind(content, where)
  text = lines_lib.decode(content, 'utf-8', where)
  text = text.removeprefix(lines_lib.MARK)
  lines = text.removesuffix('\n').split('\n')
  lines = [line.removesuffix('\r') for line in lines]
  if lines == ['']:
    raise errors.InputError(f'{where} is empty: give a prompt')
  for number, line in enumerate(lines, 1):
    if not line:
      raise errors.InputError(f'{where}, line {number} is empty: remove it')
  return lines
