"""The seal of a checkpoint: the SHA-256 of each of its files.

`sha256sum -c SHA256SUMS` in the checkpoint's folder checks it too.
"""

import contextlib
import hashlib
import os
import pathlib
import stat

from rnn_jax import errors
from rnn_jax.runs.checkpoints import remote
from rnn_jax.system import files

NAME = 'SHA256SUMS'


def write(folder: pathlib.Path) -> None:
  """Seals a checkpoint whose items are complete."""
  (folder / NAME).write_text(_sums(folder))


def damage(folder: pathlib.Path) -> str:
  """Returns what is damaged in a checkpoint, as text; '' if nothing is.

  Raises:
    OSError, or a client's error: its bucket can't be reached.
  """
  gone = FileNotFoundError if remote.is_remote(folder) else OSError
  try:
    written = remote.read_bytes(folder / NAME).decode()
    actual = _sums(folder)
  except (gone, ValueError) as error:
    return f'it cannot be read ({error})'
  changed = set(written.splitlines()) ^ set(actual.splitlines())
  if not changed:
    return '' if written else f'{NAME} is empty'
  name = min(line.partition('  ')[2] for line in changed)
  return f'{name} {"changed" if (folder / name).exists() else "is missing"}'


def refuse_special(folder: pathlib.Path) -> None:
  """Refuses pipes and devices among checkpoints: a read of one may not end.

  Raises:
    InputError: names the first.
  """
  if remote.is_remote(folder):
    return
  for root, _, names in os.walk(folder):  # passes over what another removes
    for name in names:
      path = os.path.join(root, name)
      with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(mode := os.stat(path).st_mode):
          raise errors.InputError(f'{path} is not a file ({mode:o}): remove it')


def _sums(folder):
  """Returns the digests of all files of the items, as `sha256sum` writes."""
  lines = []
  for item in folder.iterdir():
    for path in _files(item) if item.is_dir() else ():
      with _open(path) as file:
        digest = hashlib.file_digest(file, 'sha256').hexdigest()
      lines.append((str(path.relative_to(folder)), digest))
  return ''.join(f'{digest}  {name}\n' for name, digest in sorted(lines))


def _open(path):
  if remote.is_remote(path):
    return path.open('rb')
  return files.open_regular(path, within=files.named(path))


def _files(folder):
  # `glob` takes '**' for different things on disks and in buckets.
  for path in folder.iterdir():
    if path.is_dir():
      yield from _files(path)
    else:
      yield path
