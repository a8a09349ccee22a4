"""What a file format gives: examples, and where each of them was found."""

import dataclasses
from typing import Any
from typing import NamedTuple


class Image(NamedTuple):
  """An encoded picture, PNG or JPEG."""

  content: bytes


class Example(NamedTuple):
  """A row of a file.

  where: 'file:line' or the like, for messages.
  values: column to str, int, float, bool, Image, or a list of one of them.
  split: the split that the file itself puts it in, or ''.
  """

  where: str
  values: dict[str, Any]
  split: str = ''


@dataclasses.dataclass(frozen=True)
class Options:
  """How files are read."""

  document: str = 'line'  # of text files: 'line' or 'file'
  encoding: str = 'utf-8'
