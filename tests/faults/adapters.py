"""Runs of a stranger with adapters, and their files that aren't files.

A run with adapters names the run whose model it changes, in init.json; each key
of it gets values of another type or place. Each file of a run is replaced by
pipes, devices, and links that lead out of it.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from tests.faults import base
from tests.faults import commands
from tests.faults import folders

RANK = 2
HOSTILE = (None, True, -1, 1.5, 10**20, '', '\0', 'x', [], {}, [3], ['x'])
OPENED = ('generate', '--prompt=the', '--max_new_tokens=2')
EXPORTED = ('export', '--format=safetensors')
SERVED = ('serve', '--port=0')
KINDS = ('a pipe', 'a link to zeros', 'a link to a secret', 'a socket')
READ = ('config.json', 'tokenizer.json', 'init.json')


def runs(shared: base.Base) -> Iterator[commands.Attempt]:
  """Opens runs with adapters that have a hostile init.json."""
  made = run_of(shared)
  record = json.loads((made / 'init.json').read_text())
  for n, (name, value) in enumerate(_hostile(record)):
    launcher = (OPENED, EXPORTED, SERVED)[n % 3]
    unread = name in ('checkpoint', 'optimizer', 'new')
    if launcher is SERVED and name in (*READ, 'run', 'step', 'taken'):
      launcher = OPENED  # a server looks at the digest, and then serves
    if launcher is SERVED and unread:
      continue
    yield commands.Attempt(
      f'{launcher[0]}: init.json: {name}={value!r:.40}',
      launcher[0],
      _opened(shared, made, launcher, record | {name: value}),
      expects='either',
      says='init.json|adapters of|no such folder|checkpoint',
    )
  for name in READ:
    for kind in folders.SPECIAL:
      yield commands.Attempt(
        f'generate with adapters: {name} is {kind}',
        'generate',
        _special(made, name, kind),
        says=name,
        check=folders.keeps_secret,
      )
  yield commands.Attempt(
    'generate: adapters that change their own model',
    'generate',
    _opened(shared, made, OPENED, record, own=True),
    says='leads back to itself',
  )
  yield commands.Attempt(
    'generate: adapters that are well',
    'generate',
    _opened(shared, made, OPENED, record),
    expects='success',
  )


def files(shared: base.Base) -> Iterator[commands.Attempt]:
  """Uses a run whose files are pipes, devices and links."""
  names = sorted(
    str(path.relative_to(shared.run))
    for path in shared.run.rglob('*')
    if path.is_file()
  )
  for n, name in enumerate(names):
    inner = name.startswith('checkpoints')
    for words, launcher, then, kinds in (
      ('generate', 'generate', None, KINDS[n % 2 :: 2] if inner else KINDS),
      ('train on', 'train', shared.train, () if inner else KINDS[::2]),
    ):
      for kind in kinds:
        yield commands.Attempt(
          f'{words}, {name} is {kind}',
          launcher,
          _special(shared.run, name, kind, then),
          expects='either',
          check=folders.keeps_secret,
        )


def run_of(shared: base.Base) -> pathlib.Path:
  """Writes a run with adapters of zeros that changes the shared one, once."""
  import jax
  import numpy as np

  from rnn_jax import config as config_lib
  from rnn_jax.models import adapters
  from rnn_jax.runs import bundle as bundle_lib
  from rnn_jax.runs import origin
  from rnn_jax.runs import workdir
  from rnn_jax.runs.checkpoints import checkpoint

  folder = shared.folder / 'adapters'
  if folder.exists():
    return folder
  model = bundle_lib.read(shared.run, 'best')
  raw: dict[str, Any] = config_lib.to_dict(model.config)
  raw['adapters']['rank'] = RANK
  config = config_lib.parse(raw)
  expected = bundle_lib.like(config, model.tokenizer)
  changes = jax.eval_shape(
    lambda: adapters.init(jax.random.key(0), expected, config.adapters)
  )
  zeros = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), changes)
  folder.mkdir()
  text = workdir.dump(config_lib.to_dict(config))
  (folder / workdir.CONFIG).write_text(text)
  model.tokenizer.save(folder / 'tokenizer.json')
  checkpoints = checkpoint.Checkpoints(folder / workdir.CHECKPOINTS, keep=1)
  checkpoints.save_params(0, {adapters.KEY: zeros})
  checkpoints.close()
  names = [path.replace('.', '/') for path in bundle_lib.flat(expected)]
  seal = bundle_lib.digest(shared.run, model.config, model.step)
  init = origin.Init(str(shared.run))
  origin.write(init, folder, model.step, seal, (names, ()))
  return folder


def _hostile(record):
  """Yields (key of init.json, value)."""
  for name in record:
    for value in HOSTILE:
      yield name, value
  for value in ('gs://theirs/run', '/dev/zero', '/', '.', '../run'):
    yield 'run', value


def _opened(shared, made, launcher, record, own=False):
  def change(run):
    named = {'run': str(run)} if own else {}
    (run / 'init.json').write_text(json.dumps(record | named))

  def then(run):
    if launcher is SERVED:
      adapters = f'--adapters=theirs={run}'
      return [f'--workdir={shared.run}', adapters, *launcher[1:]]
    output = [f'--output={run.parent / "out.safetensors"}']
    output = output if launcher is EXPORTED else []
    return [f'--workdir={run}', *launcher[1:], *output]

  return base.changed(made, change, then)


def _special(run, name, kind, then=None):
  """Returns what makes the arguments: a run in which a file isn't one."""

  def change(copied):
    folders.write_secret(copied.parent)
    (copied / name).unlink()
    folders.SPECIAL[kind](copied / name)

  return base.changed(run, change, then or base.opened(*OPENED[1:]))
