"""Which data a run is of: a digest of each split, WORKDIR/data.json.

    {"train": {"documents": 700, "bytes": 11000000, "names": "5d...",
               "content": "a0..."}, "validation": ..., "test": ...}

A run that resumes on other data would learn from documents that it held out,
and an evaluation on other data would be called that of the run. `names` covers
the names and sizes of all documents, `content` all bytes of a split of up to
WHOLE bytes, and of a larger one SAMPLES blocks of BLOCK bytes, evenly spaced:
a change within a file between two blocks that keeps its size isn't noticed.
"""

import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from rnn_jax import errors
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.system import files

NAME = 'data.json'
WHOLE = 8 * 2**20  # bytes
SAMPLES = 1024
BLOCK = 8192  # bytes
NAMED = 100_000  # documents whose names are part of the digest

Identity = dict[str, dict[str, Any]]


def of(splits: Mapping[str, documents_lib.Documents]) -> Identity:
  """Returns the identity of the documents of each split."""
  return {name: _of_split(splits[name]) for name in documents_lib.SPLITS}


def check(
  own: Identity, workdir: str | os.PathLike, accept_new_data: bool = False
) -> None:
  """Checks that a run's data are those that it began with.

  Args:
    own: the identity of the data now.
    workdir: the run's folder.
    accept_new_data: only warns of other data.

  Raises:
    InputError: they are others, or data.json is damaged; it names what changed.
  """
  path = pathlib.Path(workdir) / NAME
  if not path.exists():
    return
  remedy = 'if the data are those that the run began with'
  with files.reading(path, f'restore a copy, or delete it {remedy}'):
    saved = files.read_json(path)
    lines = [
      f'{split} {key}: {saved[split][key]} -> {value}'
      for split, values in own.items()
      for key, value in values.items()
      if saved[split][key] != value
    ]
  if not lines:
    return
  changed = '; '.join(lines)
  if accept_new_data:
    logging.warning('the data are not those of %s: %s', path, changed)
    return
  raise errors.InputError(
    f'the data are not those that {str(workdir)!r} began with ({changed}): '
    'restore them, use another --workdir, or give --accept_new_data'
  )


def write(own: Identity, workdir: str | os.PathLike) -> None:
  """Writes data.json, unless it says the same already."""
  path = pathlib.Path(workdir) / NAME
  text = files.to_json(own, indent=1) + '\n'
  if not path.exists() or path.read_text(encoding='utf-8') != text:
    files.write_whole(path, text)


def _of_split(documents):
  limits = [WHOLE, SAMPLES, BLOCK, NAMED]
  return documents.remember(f'identity {limits}', lambda: _made(documents))


def _made(documents):
  names = hashlib.sha256()
  for first in range(0, len(documents), documents_lib.AT_ONCE):
    last = min(first + documents_lib.AT_ONCE, len(documents))
    sizes = documents.sizes_of(first, last)
    names.update(np.asarray(sizes, '<i8').tobytes())
  if len(documents) <= NAMED:
    names.update('\0'.join(documents.names).encode(errors='surrogateescape'))
  return {
    'documents': len(documents),
    'bytes': documents.total_bytes,
    'names': names.hexdigest(),
    'content': _content(documents),
  }


def _content(documents):
  digest = hashlib.sha256()
  total = documents.total_bytes
  if total <= WHOLE and len(documents) <= SAMPLES:
    for n in range(len(documents)):
      digest.update(documents.read(n))
    return digest.hexdigest()
  places = np.arange(SAMPLES) * total // SAMPLES
  for n, start in documents_lib.locate(documents, places):
    digest.update(documents.read(n, start, start + BLOCK))
  return digest.hexdigest()
