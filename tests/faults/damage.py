"""Damage to each file of one's own run: repaired, passed over, or refused.

A finished run of four steps, with checkpoints at the second and the last one,
is damaged in one file; then it is resumed, or asked to generate.
"""

import os
import pathlib
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

DAMAGES = ('empty', 'cut', 'flip', 'missing', 'folder', 'longer')


def files(shared: base.Base) -> Iterator[commands.Attempt]:
  """Damages each file in six ways, and uses the run in two."""
  names = sorted(
    str(path.relative_to(shared.run))
    for path in shared.run.rglob('*')
    if path.is_file() and path.name != '.lock'
  )
  generate = base.opened('--prompt=the', '--max_new_tokens=2')
  for name in names:
    for damage in DAMAGES:
      uses = [('train on', 'train', shared.train, _kept)]
      if not name.startswith('checkpoints'):
        uses.append(('generate', 'generate', generate, None))
      for words, launcher, then, check in uses:
        yield commands.Attempt(
          f'{words}, {name}: {damage}',
          launcher,
          base.changed(shared.run, _damaged(name, damage), then),
          expects='either',
          check=check,
        )


def _damaged(name, damage):
  return lambda run: do(run / name, damage)


def do(path: pathlib.Path, damage: str) -> None:
  """Damages a file in one of DAMAGES."""
  content = path.read_bytes()
  if damage == 'missing':
    path.unlink()
  elif damage == 'folder':
    path.unlink()
    path.mkdir()
  elif damage == 'longer':
    path.write_bytes(content + b'\0{"garbage"')
  elif damage == 'empty':
    path.write_bytes(b'')
  elif damage == 'cut':
    path.write_bytes(content[: len(content) // 2])
  else:
    flipped = bytearray(content)
    if flipped:
      flipped[len(flipped) // 2] ^= 0x10
    path.write_bytes(bytes(flipped))


def _kept(folder, ended):
  """An undamaged checkpoint is still there, whatever happened."""
  del ended
  run = pathlib.Path(folder, 'run', 'checkpoints')
  steps = [name for name in os.listdir(run) if name[:1].isdigit()]
  return None if steps else ('lost', 'no checkpoint is left')
