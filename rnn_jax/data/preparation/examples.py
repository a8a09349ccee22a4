"""What a file format yields: examples, and the location of each."""

import dataclasses
from typing import Any
from typing import NamedTuple


class Image(NamedTuple):
  """An encoded image, PNG or JPEG."""

  content: bytes


class Example(NamedTuple):
  """A row of a file.

  Attributes:
    where: its location, such as 'file:line', for messages.
    values: column to str, int, float, bool, Image, or a list of one of them;
      None: the file hides it.
    split: the split that the file assigns it to, or ''.
  """

  where: str
  values: dict[str, Any]
  split: str = ''


@dataclasses.dataclass(frozen=True)
class Options:
  """How files are read."""

  document: str = 'line'  # in text files: 'line' or 'file'
  encoding: str = 'utf-8'
  delimiter: str = ''  # of CSV; '': what the file shows
