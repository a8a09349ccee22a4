"""API keys: who asks, and what is theirs.

A file has one key per line, NAME KEY, or NAME sha256:HEX with the digest of a
key, so that the file itself opens nothing; a third word, admin, lets the key
reload the model. Two keys of one name are one owner, so that a key can be
replaced. '#' begins a comment.

    alice  sk-4f1c...
    bob    sha256:9f86d081...
    ops    sk-77d0...  admin

Keys are compared by digest, in constant time, each with all of them: how long
it takes says nothing about any.
"""

import dataclasses
import hashlib
import hmac
import os
import pathlib
import re
from collections.abc import Mapping

from rnn_jax import errors
from rnn_jax.serving.http import errors as http_errors

VARIABLE = 'RNN_JAX_API_KEYS'
NAME = re.compile(r'[A-Za-z0-9._-]{1,64}')
SHORTEST = 16  # characters of a key


@dataclasses.dataclass(frozen=True)
class Owner:
  """Who asks.

  Attributes:
    name: owns states and appears in the access log.
    admin: may reload the model.
  """

  name: str
  admin: bool = False


ANYONE = Owner('anyone')


class Keys:
  """The keys that open this server. Without any, it is open."""

  def __init__(self, owners: Mapping[bytes, Owner]) -> None:
    """Takes owners by the SHA-256 of their keys."""
    self._owners = dict(owners)

  def __bool__(self) -> bool:
    return bool(self._owners)

  def owner(self, authorization: str | None) -> Owner:
    """Returns who asks, by the header of a request.

    Raises:
      ApiError: 401, there is no key, or it isn't known; the codes differ.
    """
    if not self._owners:
      return ANYONE
    scheme, _, key = (authorization or '').partition(' ')
    given = hashlib.sha256(key.strip().encode('latin-1', 'replace')).digest()
    found = None
    for digest, owner in self._owners.items():
      if hmac.compare_digest(digest, given):
        found = owner
    if scheme.lower() != 'bearer' or not key.strip():
      raise http_errors.ApiError(
        401,
        'there is no API key: give one of this server in the header '
        'Authorization: Bearer KEY',
        code='missing_api_key',
      )
    if found is None:
      raise http_errors.ApiError(
        401,
        "the API key isn't one of this server's: check it, or ask who runs the "
        'server',
        code='invalid_api_key',
      )
    return found


def read(path: str | os.PathLike[str] | None) -> Keys:
  """Returns the keys of a file; without one, those of $RNN_JAX_API_KEYS.

  Raises:
    InputError: the file can't be read or has no key, or a line isn't one.
  """
  if path:
    source = f'keys_file={str(path)!r}'
    try:
      text = pathlib.Path(path).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
      raise errors.InputError(f'{source}: {error}') from error
    keys = parse(text, source)
    if not keys:
      raise errors.InputError(f'{source} has no key: add a line NAME KEY')
    return keys
  return parse(os.environ.get(VARIABLE, ''), VARIABLE)


def parse(text: str, source: str) -> Keys:
  """Returns the keys of a text.

  Args:
    text: lines as in the module's docstring.
    source: where it is from, for the message.

  Raises:
    InputError: a line isn't a key; the message doesn't show it.
  """
  owners: dict[bytes, Owner] = {}
  for number, line in enumerate(text.splitlines(), 1):
    words = line.partition('#')[0].split()
    if not words:
      continue
    where = f'{source}, line {number}'
    if len(words) not in (2, 3) or (len(words) == 3 and words[2] != 'admin'):
      raise errors.InputError(f'{where}: give NAME KEY, or NAME KEY admin')
    if not NAME.fullmatch(words[0]):
      raise errors.InputError(
        f'{where}: the name may have 1 to 64 letters, digits, dots, - and _'
      )
    digest = _digest(words[1], where)
    if digest in owners:
      raise errors.InputError(f'{where}: the key occurs twice: remove one')
    owners[digest] = Owner(words[0], len(words) == 3)
  return Keys(owners)


def _digest(key, where):
  if key.startswith('sha256:'):
    if not re.fullmatch('[0-9a-f]{64}', key[7:]):
      raise errors.InputError(f'{where}: give sha256: and 64 hex digits')
    return bytes.fromhex(key[7:])
  if len(key) < SHORTEST or not key.isascii():
    raise errors.InputError(
      f'{where}: a key has {SHORTEST} ASCII characters or more: make one with '
      'openssl rand -hex 24'
    )
  return hashlib.sha256(key.encode()).digest()
