"""A tokenizer.json applied by package `tokenizers`, here or in a process apart.

What is known to be cheap (tokenizer_rules.py) runs here, at full speed. Other
rules run in a process with limits (tokenizer_worker.py): the package can't be
interrupted, and aborts its process where memory ends.
"""

import contextlib
import functools
import json
import os
import pathlib
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from rnn_jax import errors
from rnn_jax.data.text import tokenizer_rules
from rnn_jax.data.text import tokenizer_worker

WORKER = pathlib.Path(tokenizer_worker.__file__)
START = 60.0  # seconds to start, and to read a tokenizer.json
SECONDS, PER_CHARACTER = 5.0, 2e-5  # seconds for a request
SHOWN = 200  # characters of the package's message
USED = ('version', 'added_tokens', 'normalizer', 'pre_tokenizer', 'model')
REMEDY = (
  'use the tokenizer that the model was published with, or convert the model '
  'without tokenizer.json to use only ids'
)


class Library:
  """The package in this process.

  Raises:
    ValueError: the package can't read it, with its reason.
  """

  def __init__(self, model: dict[str, Any]) -> None:
    self._text = _text(model)
    self._special = self._made()

  def _made(self):
    try:
      return tokenizers.Tokenizer.from_str(self._text)
    except BaseException as error:
      raise ValueError(_message(error)) from error

  @functools.cached_property
  def _plain(self):
    made = self._made()
    made.encode_special_tokens = True
    return made

  def vocabulary(self) -> dict[str, int]:
    """Returns the ids of all tokens, the added ones too."""
    return self._special.get_vocab(with_added_tokens=True)

  def encode(
    self, texts: Sequence[str], special: bool = True
  ) -> list[np.ndarray]:
    """Returns the int32 ids of texts.

    Args:
      texts: what is encoded.
      special: whether special tokens are recognized in them.

    Raises:
      InputError: the tokenizer fails, or takes too long.
    """
    made = self._special if special else self._plain
    try:
      # It doesn't make the places of tokens in the text.
      encodings = made.encode_batch_fast([*texts], add_special_tokens=False)
    except BaseException as error:
      raise errors.InputError(_failed(_message(error))) from error
    return [np.array(each.ids, np.int32) for each in encodings]


class Apart(Library):
  """The package in a process of its own, started when it is needed."""

  def __init__(self, model: dict[str, Any]) -> None:
    self._text = _text(model).encode()
    self._process: subprocess.Popen | None = None
    self._owner = 0  # the process that started it: a fork starts its own
    self._lock = threading.Lock()
    try:
      self._vocabulary = self._started()
    except errors.InputError as error:
      raise ValueError(str(error)) from error

  def __getstate__(self) -> dict[str, Any]:
    gone = {'_process': None, '_owner': 0, '_lock': None}
    return self.__dict__ | gone

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__ |= state | {'_lock': threading.Lock()}

  def __del__(self) -> None:
    if getattr(self, '_owner', 0) == os.getpid():
      self._end()

  def vocabulary(self) -> dict[str, int]:
    return self._vocabulary

  def encode(
    self, texts: Sequence[str], special: bool = True
  ) -> list[np.ndarray]:
    request = json.dumps({'texts': [*texts], 'special': special}).encode()
    seconds = SECONDS + PER_CHARACTER * sum(map(len, texts))
    with self._lock:
      if self._process is None or self._owner != os.getpid():
        self._started()
      counts = self._asked(request, seconds)['counts']
      content = self._read(time.monotonic() + seconds)
    ends = np.cumsum(counts)[:-1]
    return np.split(np.frombuffer(content, '<i4').astype(np.int32), ends)

  def _started(self):
    """Starts the process. Returns the vocabulary."""
    self._owner = os.getpid()
    self._process = subprocess.Popen(
      [sys.executable, '-I', str(WORKER)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      start_new_session=True,  # Ctrl-C ends the owner, which ends this
    )
    return self._asked(self._text, START)['vocabulary']

  def _asked(self, request, seconds):
    """Returns what the process answers to a request."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(OSError):  # it has ended, which is seen below
      tokenizer_worker.write(self._process.stdin, request)
    answer = json.loads(self._read(deadline, seconds))
    if 'error' in answer:
      raise errors.InputError(_failed(_message(answer['error'])))
    return answer

  def _read(self, deadline, seconds=0.0):
    (size,) = struct.unpack('<Q', self._bytes(8, deadline, seconds))
    return self._bytes(size, deadline, seconds)

  def _bytes(self, count, deadline, seconds):
    stream, content = self._process.stdout.fileno(), bytearray()
    while len(content) < count:
      left = deadline - time.monotonic()
      if left <= 0 or not select.select([stream], [], [], left)[0]:
        self._end()
        raise errors.InputError(_failed(f'it took more than {seconds:.0f} s'))
      piece = os.read(stream, min(count - len(content), 2**20))
      if not piece:
        self._end()
        memory = tokenizer_worker.MEMORY / 2**30
        raise errors.InputError(
          _failed(f'its process ended, which may take {memory:.0f} GiB')
        )
      content += piece
    return bytes(content)

  def _end(self):
    process, self._process = self._process, None
    if process is not None:
      process.kill()
      process.wait()
      process.stdin.close()
      process.stdout.close()


def make(model: dict[str, Any]) -> Library:
  """Returns what applies a tokenizer.json.

  Raises:
    ValueError: the package can't read it, with its reason.
  """
  return (Library if tokenizer_rules.are_known(model) else Apart)(model)


def _text(model):
  """Returns what encoding needs of a tokenizer.json."""
  return json.dumps({key: model[key] for key in USED if key in model})


def _message(error):
  """Returns the package's words; raises what isn't an error of its."""
  if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
    raise error
  return ' '.join(str(error).split())[:SHOWN]


def _failed(words):
  return (
    f"the model's tokenizer.json can't encode this text ({words}): {REMEDY}"
  )
