"""Writing: files that are whole at any time, strict JSON, optional files."""

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from absl import logging

_missed: set[str] = set()  # paths that a warning has named


def write_whole(path: str | os.PathLike, text: str) -> None:
  """Writes a text in UTF-8, in place of an existing file."""
  path = pathlib.Path(path)
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  try:
    part.write_text(text, encoding='utf-8')
    os.replace(part, path)
  except OSError:
    with contextlib.suppress(OSError):
      part.unlink(missing_ok=True)
    raise


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


def read_json(
  path: str | os.PathLike, limit: int = 64 * 2**20, finite: bool = True
) -> Any:
  """Returns the value of a JSON file of at most `limit` bytes.

  Raises:
    ValueError: it is larger, or not JSON, see `from_json`.
    OSError: it can't be read.
  """
  path = pathlib.Path(path)
  if (size := path.stat().st_size) > limit:
    raise ValueError(f'{size:,} bytes, and {limit:,} are allowed')
  return from_json(path.read_text(encoding='utf-8'), finite)


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
