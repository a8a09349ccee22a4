"""The seal of a checkpoint: the SHA-256 of each of its files.

`sha256sum -c SHA256SUMS` in the checkpoint's folder checks it, too.
"""

import hashlib
import pathlib

NAME = 'SHA256SUMS'


def write(folder: pathlib.Path) -> None:
  """Seals a checkpoint whose items are whole."""
  (folder / NAME).write_text(_sums(folder))


def damage(folder: pathlib.Path) -> str:
  """Says what is damaged in a checkpoint; '' if nothing is."""
  try:
    written, found = (folder / NAME).read_text(), _sums(folder)
  except (OSError, ValueError) as error:
    return f'it cannot be read ({error})'
  changed = set(written.splitlines()) ^ set(found.splitlines())
  if not changed:
    return '' if written else f'{NAME} is empty'
  name = min(line.partition('  ')[2] for line in changed)
  return f'{name} {"changed" if (folder / name).exists() else "is missing"}'


def _sums(folder):
  """Returns the digests of all files of the items, as `sha256sum` writes."""
  lines = []
  for path in sorted(folder.glob('*/**/*')):
    if path.is_file():
      with open(path, 'rb') as file:
        digest = hashlib.file_digest(file, 'sha256').hexdigest()
      lines.append(f'{digest}  {path.relative_to(folder)}\n')
  return ''.join(lines)
