"""Files: strangers' read with care, one's own whole at any time, strict JSON.

What a stranger wrote is opened in one way (`regular`): it is a regular file,
never a pipe or a device, and in the stranger's own folder, so that no link
takes a file of yours along. It is bounded while it is read, for a size on disk
proves nothing, and a text is UTF-8.
"""

import contextlib
import glob
import json
import math
import os
import pathlib
import shutil
import stat
from collections.abc import Iterator
from typing import IO
from typing import Any

from absl import logging

from rnn_jax import errors

LIMIT = 64 * 2**20  # bytes of a text that is read at once
SMALL = 8 * 2**20  # bytes, of a file of settings
BLOCK = 2**20  # bytes of a read
KINDS = (  # what isn't a file
  (stat.S_ISDIR, 'a folder'),
  (stat.S_ISFIFO, 'a pipe'),
  (stat.S_ISSOCK, 'a socket'),
  (stat.S_ISCHR, 'a device'),
  (stat.S_ISBLK, 'a device'),
)
_missed: set[str] = set()  # paths that a warning has named


def write_whole(path: str | os.PathLike, content: str | bytes) -> None:
  """Writes bytes, or a text in UTF-8, in place of an existing file or link."""
  path = pathlib.Path(path)
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  if isinstance(content, str):
    content = content.encode()
  try:
    part.write_bytes(content)
    os.replace(part, path)
  except OSError:
    with contextlib.suppress(OSError):
      part.unlink(missing_ok=True)
    raise


@contextlib.contextmanager
def whole_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Inside it a folder is filled, which is at `path` afterwards."""
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  try:
    part.mkdir(parents=True)
    yield part
    os.replace(part, path)
  finally:
    shutil.rmtree(part, ignore_errors=True)


def to_json(value: Any, **options: Any) -> str:
  """Returns JSON; a number that JSON lacks, NaN or infinity, is null.

  Args:
    value: of JSON's types and tuples.
    **options: of json.dumps.
  """
  try:
    return json.dumps(value, allow_nan=False, **options)
  except ValueError:
    return json.dumps(_without_nan(value), allow_nan=False, **options)


def from_json(text: str | bytes, finite: bool = True) -> Any:
  """Returns the value of JSON that a stranger may have written.

  Args:
    text: in UTF-8.
    finite: whether NaN and infinity, which JSON lacks, are refused.

  Raises:
    ValueError: it isn't JSON, or nested so deep that it would exhaust the
      stack.
  """
  decoder = _DECODER if finite else _LENIENT
  try:
    return decoder.decode(text if isinstance(text, str) else text.decode())
  except RecursionError:
    raise ValueError('it is nested too deep') from None


class NotAFileError(ValueError):
  """What a path leads to isn't a file of its folder.

  The message says what it is, and doesn't name the path.
  """


def regular(
  path: str | os.PathLike, within: str | os.PathLike | None = None
) -> str:
  """Returns the real path of a file that a stranger may have made.

  Args:
    path: of it.
    within: the folder that it must be in, wherever its links lead; None: its
      own. The hub keeps the files of `snapshots/REVISION` in `blobs` next to
      `snapshots`, and links to these are followed.

  Raises:
    NotAFileError: it isn't a regular file, or its links leave the folder.
    OSError: there is none.
  """
  path = pathlib.Path(path)
  folder = os.path.realpath(path.parent if within is None else within)
  real = os.path.realpath(path)
  mode = os.stat(real).st_mode  # before it is opened: a device may notice
  if not stat.S_ISREG(mode):
    kind = next((name for holds, name in KINDS if holds(mode)), 'special')
    raise NotAFileError(f'it is {kind}, and must be a file')
  if not any(_is_in(real, one) for one in (folder, *_blobs(folder))):
    raise NotAFileError(
      f'it links to {real}, outside of {folder}, and must be copied there'
    )
  return real


def matching(pattern: str) -> list[str]:
  """Returns the file of that path, else those that a glob matches, sorted."""
  exists = os.path.exists(pattern)
  paths = [pattern] if exists else glob.glob(pattern, recursive=True)
  return sorted(path for path in paths if os.path.isfile(path))


def below(folder: str) -> list[str]:
  """Returns the files of a folder and of those below it, sorted."""
  return sorted(
    os.path.join(above, name)
    for above, _, names in os.walk(folder)
    for name in names
  )


def named(path: str | os.PathLike) -> str:
  """Returns `within` for a file that the user names, whose links are meant."""
  return os.path.dirname(os.path.realpath(path))


def open_regular(
  path: str | os.PathLike, within: str | os.PathLike | None = None
) -> IO[bytes]:
  """Opens such a file for reading; the arguments and errors of `regular`."""
  real = regular(path, within)
  file = os.fdopen(os.open(real, os.O_RDONLY | _careful()), 'rb', buffering=0)
  if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
    file.close()
    raise ValueError('it is not a file any more')
  return file


def _careful():
  """Flags of a stranger's file; a call, as layers import this on Windows."""
  return os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_append(path: str | os.PathLike) -> IO[bytes]:
  """Opens a file of a folder that a stranger may have made, to add to it.

  Raises:
    OSError: it can't be written, or is a link or a pipe.
  """
  flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _careful()
  return os.fdopen(os.open(path, flags, 0o666), 'ab', buffering=0)


def read_bytes(
  path: str | os.PathLike,
  limit: int = LIMIT,
  within: str | os.PathLike | None = None,
) -> bytes:
  """Returns the content of such a file, of at most `limit` bytes.

  Raises:
    ValueError: as `regular`, or it has more bytes.
    OSError: it can't be read.
  """
  parts, left = [], limit
  with open_regular(path, within) as file:
    if (size := os.fstat(file.fileno()).st_size) > limit:
      raise ValueError(f'{size:,} bytes, and {limit:,} are allowed')
    while left >= 0 and (part := file.read(min(BLOCK, left + 1))):
      parts.append(part)
      left -= len(part)
  if left < 0:
    raise ValueError(f'more than {limit:,} bytes, which are allowed')
  return b''.join(parts)


def read_text(
  path: str | os.PathLike,
  limit: int = LIMIT,
  within: str | os.PathLike | None = None,
) -> str:
  """Returns such a text.

  Raises:
    ValueError: as `read_bytes`, or it isn't UTF-8.
    OSError: it can't be read.
  """
  content = read_bytes(path, limit, within)
  try:
    return content.decode()
  except UnicodeDecodeError as error:
    raise ValueError(
      f'byte {error.start:,} is not UTF-8 ({error.reason})'
    ) from None


def read_json(
  path: str | os.PathLike,
  limit: int = LIMIT,
  finite: bool = True,
  within: str | os.PathLike | None = None,
) -> Any:
  """Returns the value of such a file of JSON.

  Raises:
    ValueError: as `read_text`, or it isn't JSON, see `from_json`.
    OSError: it can't be read.
  """
  return from_json(read_text(path, limit, within), finite)


@contextlib.contextmanager
def reading(path: str | os.PathLike, remedy: str) -> Iterator[None]:
  """Inside it a file is read and checked, and what fails is one line.

  Args:
    path: of the file.
    remedy: what the user can do about it.

  Raises:
    InputError: in place of what the functions above raise, and of an error of
      a missing key or a wrong type.
  """
  try:
    yield
  except OSError as error:
    reason = error.strerror or error
    raise errors.InputError(f'{path}: {reason}: {remedy}') from error
  except NotAFileError as error:
    raise errors.InputError(f'{path}: {error}: {remedy}') from error
  except (ValueError, KeyError, TypeError) as error:
    raise errors.InputError(f'{path} is damaged ({error}): {remedy}') from error


@contextlib.contextmanager
def may_be_missed(path: str | os.PathLike) -> Iterator[None]:
  """Inside it an error of the disk is a warning, once for each path.

  For what tells about a run and isn't the run: a full disk costs no step.
  """
  try:
    yield
  except OSError as error:
    if str(path) not in _missed:
      _missed.add(str(path))
      logging.warning(
        '%s cannot be written (%s): the run goes on without',
        path,
        error.strerror or error,
      )


def _is_in(path, folder):
  return os.path.commonpath((path, folder)) == folder


def _blobs(folder):
  """Yields where the hub has the files of a folder of a snapshot, or of it."""
  place = pathlib.Path(folder)
  for one in (place, *place.parents):
    if one.parent.name == 'snapshots':
      yield str(one.parent.parent / 'blobs')


def _refuse_constant(name):
  raise ValueError(f'{name} is not JSON')


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder()


def _without_nan(value):
  if isinstance(value, dict):
    return {key: _without_nan(x) for key, x in value.items()}
  if isinstance(value, (list, tuple)):
    return [_without_nan(x) for x in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
