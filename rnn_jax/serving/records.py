"""What is known of a stored state, and what all places of states check.

Each state has the SHA-256 of its bytes in its record; an owner is the name of
an API key.
"""

import dataclasses
import hashlib
import re
import secrets
import time
from typing import NoReturn

from rnn_jax import errors

DAY = 86400.0
ID = re.compile(r'state-[0-9a-f]{32}')


class NotFoundError(errors.InputError):
  """The owner has no state of this id."""


class DamagedError(errors.InputError):
  """The bytes of a state aren't those that were stored."""


class QuotaError(errors.InputError):
  """The owner's states would take more bytes than allowed."""


class UnavailableError(RuntimeError):
  """The place of the states doesn't answer, or has no space."""


@dataclasses.dataclass(frozen=True)
class Record:
  """What is known of a state without reading it.

  Attributes:
    id: its name, which nobody can guess.
    model: the digest of the model that made it.
    tokens: how many it has read.
    size: in bytes.
    sha256: of its bytes.
    created: seconds since 1970.
  """

  id: str
  model: str
  tokens: int
  size: int
  sha256: str
  created: float


@dataclasses.dataclass(frozen=True)
class Limits:
  """What one owner may store, and for how long.

  Attributes:
    bytes_per_owner: of all states of one owner.
    days: without being read, after which a state is removed; 0: never.
  """

  bytes_per_owner: int = 2**30
  days: float = 30.0

  def __post_init__(self):
    if self.bytes_per_owner < 0:
      errors.refuse('store_bytes', self.bytes_per_owner, 'give 0 or more')
    if not 0 <= self.days < 1e6:
      errors.refuse('store_days', self.days, 'give 0 (for ever) or more')


def make_record(content: bytes, tokens: int, model: str) -> Record:
  """Returns the record of a new state."""
  return Record(
    id=f'state-{secrets.token_hex(16)}',
    model=model,
    tokens=tokens,
    size=len(content),
    sha256=hashlib.sha256(content).hexdigest(),
    created=time.time(),
  )


def checked(record: Record, content: bytes) -> bytes:
  """Returns the bytes of a state. Raises DamagedError."""
  if hashlib.sha256(content).hexdigest() != record.sha256:
    raise DamagedError(
      f'state={record.id!r}: its bytes are damaged: delete it, and make it '
      'again'
    )
  return content


def check_quota(size: int, limits: Limits) -> None:
  """Checks the bytes of an owner's states. Raises QuotaError."""
  if size > limits.bytes_per_owner:
    raise QuotaError(
      f'your states would take {size:,} bytes, and {limits.bytes_per_owner:,} '
      'are allowed: delete some'
    )


def refuse_id(state_id: str) -> NoReturn:
  """Raises NotFoundError."""
  raise NotFoundError(
    f'state={state_id!r}: there is no such state: GET /v1/states lists yours'
  )
