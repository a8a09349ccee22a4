"""The access log: a JSON object per request and line, without texts.

    {"time": "2026-01-31T12:00:00.123Z", "id": "req-...", "owner": "alice",
     "method": "POST", "path": "/v1/completions", "status": 200,
     "seconds": 0.41, "prompt_tokens": 12, ...}

Query strings aren't written. With `texts` prompts and answers are.
"""

import datetime
import sys
import threading
from collections.abc import Mapping
from typing import Any
from typing import TextIO

from rnn_jax import errors
from rnn_jax.system import files

TEXTS = 'prompt', 'completion'  # entries that are texts


class AccessLog:
  """Writes lines; nothing if it has no file."""

  def __init__(self, path: str, texts: bool = False) -> None:
    """Takes a file that lines are appended to; '-': stderr, '': none.

    Raises:
      InputError: the file can't be written.
    """
    self.texts = texts
    self._lock = threading.Lock()
    self._file: TextIO | None = None
    if path == '-':
      self._file = sys.stderr
    elif path:
      try:
        self._file = open(path, 'a', encoding='utf-8')  # noqa: SIM115
      except OSError as error:
        errors.refuse(
          'access_log', path, f'{error.strerror}: give a file, or - for stderr'
        )

  def write(self, entry: Mapping[str, Any]) -> None:
    """Writes what is known of a request; a full disk costs no request."""
    if self._file is None:
      return
    now = datetime.datetime.now(datetime.UTC)
    line = {'time': now.isoformat(timespec='milliseconds')[:-6] + 'Z'}
    for name, value in entry.items():
      if self.texts or name not in TEXTS:
        line[name] = value
    with self._lock, files.may_be_missed('access_log'):
      self._file.write(files.to_json(line) + '\n')
      self._file.flush()
