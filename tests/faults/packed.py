"""Damage to a run's file of packed weights.

A run has weights/int8.safetensors. It, or its folder, is damaged; then text is
written with these weights, or from the checkpoint. Either it is that of the
undisturbed run, or a line refuses: never another text.
"""

import json
import pathlib
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands
from tests.faults import kept

FILE = 'weights/int8.safetensors'
SAYS = 'launch.quantize|checkpoint'
HEADERS = {
  'another version': lambda header: header['__metadata__'].update(version='9'),
  'numbers as metadata': lambda header: header.update(__metadata__={'a': 1}),
  'a negative offset': lambda header: _first(header).update(
    data_offsets=[-64, 0]
  ),
  'an offset of 2^60': lambda header: _first(header).update(
    data_offsets=[2**60, 2**60 + 64]
  ),
  'a shape of 2^70': lambda header: _first(header).update(shape=[2**70]),
  'another dtype': lambda header: _first(header).update(dtype='F64'),
  'another name': lambda header: header.update(x=header.pop(_name(header))),
}


def files(shared: base.Base) -> Iterator[commands.Attempt]:
  """Damages the file in each way, and writes text in two."""
  run = _made(shared)
  for name, damage in _damages():
    for weights in ('int8', 'float32'):
      said = json.loads((run / f'{weights}.json').read_text())
      yield commands.Attempt(
        f'generate in {weights}, {name}',
        'generate',
        base.changed(run, damage, base.opened(*_flags(shared, weights))),
        # What doesn't ask for the file doesn't open it.
        expects='either' if weights == 'int8' else 'success',
        says=SAYS,
        check=_same(said),
      )


def _damages():
  for name, damage in kept.KINDS.items():
    yield name, lambda run, damage=damage: damage(run / FILE)
  for name, change in HEADERS.items():
    yield name, lambda run, change=change: _rewrite(run / FILE, change)
  for name in ('removed', 'a file', 'a pipe', 'empty'):
    damage = kept.FOLDERS[name]
    yield (
      f'the folder: {name}',
      lambda run, damage=damage: damage((run / FILE).parent),
    )


def _made(shared):
  """Returns a run with the file, and what it writes in each format."""
  run = shared.folder / 'packed' / 'run'
  if run.exists():
    return run
  run.parent.mkdir()
  base.copy(shared.run, run.parent)
  programs = f'--compilation_cache={shared.folder / "programs"}'
  steps = [('quantize', [f'--workdir={run}', programs], None)]
  for weights in ('int8', 'float32'):
    arguments = base.opened(*_flags(shared, weights))(run)
    steps.append(('generate', arguments, f'{weights}.json'))
  for launcher, arguments, file in steps:
    ended = shared.server.run(launcher, arguments, timeout=300)
    if ended.code:
      raise RuntimeError(f'{launcher}: {ended.err}')
    if file:
      (run / file).write_text(ended.out)
  return run


def _flags(shared, weights):
  return (
    '--prompt=the',
    '--max_new_tokens=8',
    '--temperature=0',
    '--json',
    f'--weights={weights}',
    f'--compilation_cache={shared.folder / "programs"}',
  )


def _same(said):
  """Returns a check that a command wrote the same, or nothing."""

  def check(folder, ended):
    del folder
    if ended.code or json.loads(ended.out) == said:
      return None
    return 'silent', f'another text: {ended.out[:200]}'

  return check


def _name(header):
  return next(name for name in header if name != '__metadata__')


def _first(header):
  return header[_name(header)]


def _rewrite(path: pathlib.Path, change):
  """Changes the header of a file."""
  content = path.read_bytes()
  length = int.from_bytes(content[:8], 'little')
  header = json.loads(content[8 : 8 + length])
  change(header)
  text = json.dumps(header).encode()
  whole = len(text).to_bytes(8, 'little') + text + content[8 + length :]
  path.write_bytes(whole)
