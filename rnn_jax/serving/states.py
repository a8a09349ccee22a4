"""A row's state as a value: bytes that a client or a store may keep.

    magic (8 bytes)   safetensors: leaves, logits, header   HMAC-SHA256 (32)

The header names the model by a digest of all that its numbers follow from, and
the text that was read by its chunks' digest (reading.py) and its number of
tokens. The signature covers all bytes before it, under a key of the caller: a
state that is damaged, cut off, signed with another key or of another model is
refused. The bytes are data: nothing in them is executed.
"""

import dataclasses
import hashlib
import hmac
import json
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from rnn_jax import errors

MAGIC = b'rnnjaxs1'
SIGNATURE = 32  # bytes of HMAC-SHA256
LOGITS = 'logits'


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
    name: np.ascontiguousarray(jax.device_get(x)) for name, x in arrays.items()
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
  header = _metadata(body)
  logits = arrays.pop(LOGITS)
  return State(
    header['model'],
    header['text'],
    int(header['count']),
    header['ended'] == '1',
    tuple(arrays[name] for name in sorted(arrays)),
    logits,
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


def _metadata(body):
  size = int.from_bytes(body[:8], 'little')
  return json.loads(body[8 : 8 + size])['__metadata__']


def _check_key(key):
  if not isinstance(key, bytes) or not key:
    errors.refuse('key', key, 'give secret bytes, 32 or more')
