"""A row's state as a value: bytes that a client or a store may keep.

    magic (8 bytes)   safetensors: leaves, logits, header   HMAC-SHA256 (32)

The header names the model by a digest of all that its numbers follow from, and
the text that was read by its chunks' digest (reading.py) and its number of
tokens. The signature covers all bytes before it, under a key of the caller: a
state that is damaged, cut off, signed with another key or of another model is
refused. A leaf in bfloat16 is stored as its bits, uint16, which no leaf is. The
bytes are data: nothing in them is executed.
"""

import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import pathlib
import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from rnn_jax import errors

MAGIC = b'rnnjaxs1'
SIGNATURE = 32  # bytes of HMAC-SHA256
LOGITS = 'logits'
KEY_FILE = 'signing.key'
KEY_VARIABLE = 'RNN_JAX_STATE_KEY'
MIN_KEY = 32  # bytes


@dataclasses.dataclass(frozen=True, eq=False)
class State:
  """What a model knows after a text.

  Attributes:
    model: digest of the model.
    text: digest of the text's chunks.
    count: tokens of the text.
    ended: whether the text ends with a boundary.
    leaves: of the state of one row, NumPy arrays or arrays on a device.
    logits_1xV: of the next token.
  """

  model: str
  text: str
  count: int
  ended: bool
  leaves: tuple[Any, ...]
  logits_1xV: Any

  @property
  def nbytes(self) -> int:
    """Its size in memory."""
    return sum(x.nbytes for x in (*self.leaves, self.logits_1xV))


def dump(state: State, key: bytes) -> bytes:
  """Returns a state as bytes that only holders of `key` can make.

  Raises:
    InputError: the key is empty.
  """
  _check_key(key)
  arrays = {f'leaf_{n:04}': x for n, x in enumerate(state.leaves)}
  arrays[LOGITS] = state.logits_1xV
  arrays = {
    name: _stored(np.ascontiguousarray(jax.device_get(x)))
    for name, x in arrays.items()
  }
  header = {
    'model': state.model,
    'text': state.text,
    'count': f'{state.count:020}',  # all states have one size
    'ended': str(int(state.ended)),
  }
  content = MAGIC + safetensors.numpy.save(arrays, header)
  return content + hmac.digest(key, content, 'sha256')


def load(data: bytes, key: bytes) -> State:
  """Returns the state of bytes from `dump` with the same key.

  Raises:
    InputError: they are damaged, or signed with another key.
  """
  _check_key(key)
  content, signature = data[:-SIGNATURE], data[-SIGNATURE:]
  signed = hmac.compare_digest(hmac.digest(key, content, 'sha256'), signature)
  if len(data) < SIGNATURE + len(MAGIC) or not signed:
    raise errors.InputError(
      f'state of {len(data):,} bytes: its signature is wrong, so it is damaged '
      'or was made with another key: read the text again'
    )
  if not content.startswith(MAGIC):
    raise errors.InputError(
      f'state of {len(data):,} bytes: another version of rnn_jax made it: read '
      'the text again'
    )
  body = content[len(MAGIC) :]
  arrays = safetensors.numpy.load(body)
  header = metadata(body)
  logits = arrays.pop(LOGITS)
  return State(
    header['model'],
    header['text'],
    int(header['count']),
    header['ended'] == '1',
    tuple(_restored(arrays[name]) for name in sorted(arrays)),
    logits,
  )


def read_key(path: str | None, store: str) -> bytes:
  """Returns the key that signs states.

  It is that of the file, else of $RNN_JAX_STATE_KEY, else of the folder of
  stored states, where it is made; with a Redis server one must be given, the
  same for all replicas.

  Raises:
    InputError: it can't be read or made, or is short.
  """
  if path:
    try:
      key = pathlib.Path(path).read_bytes().strip()
    except OSError as error:
      errors.refuse('state_key_file', path, f'{error.strerror}')
    return _hashed(key, f'state_key_file={path!r}')
  if given := os.environ.get(KEY_VARIABLE):
    return _hashed(given.encode(), KEY_VARIABLE)
  if '://' in store:
    raise errors.InputError(
      f'store=redis: replicas sign states with one key: give it by '
      f'--state_key_file or {KEY_VARIABLE} (openssl rand -hex 32)'
    )
  own = pathlib.Path(store) / KEY_FILE
  try:
    own.parent.mkdir(parents=True, exist_ok=True)
    part = own.with_name(f'{KEY_FILE}.{os.getpid()}.part')
    with open(os.open(part, os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as file:
      file.write(secrets.token_hex(MIN_KEY).encode())
      file.flush()
      os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
      os.link(part, own)  # another process may have made it
    part.unlink()
    return _hashed(own.read_bytes().strip(), str(own))
  except OSError as error:
    errors.refuse(
      'store', store, f'{error.strerror}: give a folder that can be written'
    )


def digest(params: Any, *facts: str) -> str:
  """Returns the digest of a model.

  Args:
    params: its parameters, a tree of arrays.
    *facts: whatever else its numbers follow from.
  """
  sha = hashlib.sha256()
  for fact in facts:
    sha.update(hashlib.sha256(fact.encode()).digest())
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    x = np.ascontiguousarray(jax.device_get(leaf))
    sha.update(f'{jax.tree_util.keystr(path)} {x.dtype} {x.shape}'.encode())
    sha.update(x.view(np.uint8).data if x.ndim else x.tobytes())
  return sha.hexdigest()


def metadata(body: bytes) -> dict[str, str]:
  """Returns the header's texts of safetensors."""
  size = int.from_bytes(body[:8], 'little')
  return json.loads(body[8 : 8 + size])['__metadata__']


def _stored(x):
  return x.view(np.uint16) if x.dtype == jnp.bfloat16 else x


def _restored(x):
  return x.view(jnp.bfloat16) if x.dtype == np.uint16 else x


def _check_key(key):
  if not isinstance(key, bytes) or not key:
    errors.refuse('key', key, 'give secret bytes, 32 or more')


def _hashed(key, source):
  if len(key) < MIN_KEY:
    raise errors.InputError(
      f'{source}: {len(key)} bytes: give {MIN_KEY} or more (openssl rand '
      '-hex 32)'
    )
  return hashlib.sha256(key).digest()
