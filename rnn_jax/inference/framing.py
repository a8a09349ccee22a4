"""A text as a run's model reads it: framed as its task frames a document.

    language_modeling   boundary text boundary
    dialogue            boundary turn boundary turn ... boundary
                        or by the tokenizer's chat template

The task's own maker of examples does it, so that a text is framed as in
training, without cuts. It reads all ids but the last and predicts all but the
first; ids that a task only reads, such as a dialogue's first turn, don't count.
An empty text is two boundaries: all that is predicted is that it ends.
"""

import dataclasses

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base
from rnn_jax.runs import bundle as bundle_lib

SPACES = b' \n\t\r\v\f'
MAX_IDS = 2**30
SHOWN = 60  # characters of a text that a message shows


@dataclasses.dataclass(frozen=True, eq=False)
class Framed:
  """A text and its tokens; L are predicted.

  Attributes:
    text: UTF-8.
    first: the id that is read first and not predicted.
    ids_L: int32, the predicted ids.
    counted_L: whether a prediction counts in the loss.
  """

  text: bytes
  first: int
  ids_L: np.ndarray
  counted_L: np.ndarray

  @property
  def read_L(self) -> np.ndarray:
    """What the model reads before each prediction."""
    return np.append(np.int32(self.first), self.ids_L[:-1])


def frame(bundle: bundle_lib.Bundle, text: str | bytes) -> Framed:
  """Returns a text framed by the task of a model.

  Args:
    bundle: the model.
    text: a document; turns of a dialogue are one per line. Characters that the
      vocabulary lacks become its unknown token, as in training.

  Raises:
    InputError: it isn't UTF-8, or the task predicts nothing of it.
  """
  content = tokenizer_lib.valid(text).encode()
  config, tokenizer = bundle.config, bundle.tokenizer
  task, ids = _example(config, tokenizer, content)
  if not content and task.predicts_all:
    ids = np.full(2, tokenizer.boundary, np.int32)
  counted_L = ids[1:] >= 0
  if not counted_L.any():
    remedy = 'give two turns or more, one per line'
    if not task.answers:
      remedy = 'give a text like those of its training'
    raise errors.InputError(
      f'text {_shown(text)}: task.name={config.task.name!r} predicts no token '
      f'of it: {remedy}'
    )
  plain = np.maximum(ids, ~ids)
  return Framed(content, int(plain[0]), plain[1:], counted_L)


def spans(framed: Framed, tokenizer: tokenizer_lib.Tokenizer) -> np.ndarray:
  """Returns the byte range in the text of each predicted token, Lx2 int64.

  Boundaries are empty ranges. A lossy tokenizer's tokens, and those between
  which a task leaves out text, are searched for from left to right; (-1, -1)
  from the first counted one on that isn't found, and for marks of a template.
  """
  ids_L, text = framed.ids_L, framed.text
  spelled = tokenizer.spelled
  if tokenizer.decode_bytes(ids_L) == text:
    ends_L = np.cumsum([len(spelled[i]) for i in ids_L.tolist()])
    return np.stack([np.append(0, ends_L[:-1]), ends_L], 1).astype(np.int64)
  spans_Lx2 = np.full((len(ids_L), 2), -1, np.int64)
  at = 0
  for n, token in enumerate(ids_L.tolist()):
    if token == tokenizer.boundary:
      spans_Lx2[n] = at, at
      while text[at : at + 1] == b'\n':  # between two turns
        at += 1
      continue
    piece = None if token == tokenizer.unknown else spelled[token]
    if (begin := _find(text, at, piece, tokenizer.lossless)) < 0:
      if tokenizer.template and not framed.counted_L[n]:
        continue
      break
    at = _end(text, begin, piece, tokenizer.lossless)
    spans_Lx2[n] = begin, at
  return spans_Lx2


def _find(text, at, piece, lossless):
  """Returns where a piece begins at `at` or after spaces there; -1: nowhere.

  Without a piece, any character is meant.
  """
  while at < len(text):
    space = text[at] in SPACES
    if piece is None and (lossless or not space):
      return at
    if piece is not None and text.startswith(_sought(piece, lossless), at):
      return at
    if not space:
      break
    at += 1
  return -1


def _end(text, begin, piece, lossless):
  if piece is not None:
    return begin + len(_sought(piece, lossless))
  return (
    begin + 1 + documents_lib.skip_to_character(text[begin + 1 : begin + 4])
  )


def _sought(piece, lossless):
  # Words of a lossy tokenizer end with a space that the text may lack.
  return piece if lossless else piece.strip()


def _shown(text):
  return repr(text[:SHOWN]) + '...' * (len(text) > SHOWN)


def _example(config, tokenizer, content):
  """Returns the task that frames a document, and its ids.

  The ids are as in rnn_jax/data/batching/rows.py.
  """
  task = config.task
  tasks = config_lib.load('tasks', task.frames_as or task.name, 'task.name')
  if task.frames_as:
    task = tasks.Config(name=task.frames_as)
  longest = 4 * len(content) + 16  # no token is shorter than a byte
  if tokenizer.template and task.answers:
    longest = MAX_IDS  # a template writes any number of tokens
  options = base.Options(task, config.data, longest, None)
  reader = _Text(content)
  whole = np.array([0]), np.array([0]), reader.sizes
  documents = documents_lib.Documents(reader, *whole)
  return task, tasks.make_examples(documents, tokenizer, options).read(0)


class _Text:
  """The documents_lib.Reader of one text in memory."""

  files = ()
  names = ('text',)
  labels = None
  difficulties = None

  def __init__(self, content):
    self.sizes = np.array([len(content)], np.int64)
    self._content = content

  def read(self, unit: int, start: int, stop: int) -> bytes:
    del unit
    return self._content[start:stop]
