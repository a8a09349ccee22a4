"""Atomic writes: a file is complete or absent at any time."""

import os
import pathlib


def write_whole(path: str | os.PathLike, text: str) -> None:
  """Writes a text in UTF-8, in place of an existing file."""
  path = pathlib.Path(path)
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  part.write_text(text, encoding='utf-8')
  os.replace(part, path)
