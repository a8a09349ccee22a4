"""Makes the kept runs of this version: one small run of each kind.

    python -m tests.kept_runs.make

writes tests/kept_runs/VERSION: `data`, a run of each of kinds.KINDS that has
one step left, and `answers.json`, what answers.py gets of each. Every later
version must read the runs and answer the same (test_kept_runs.py), so a folder
is made once, before its version is released, and never again. A new kind of run
is a line in kinds.KINDS; earlier versions don't have it.

Training is deterministic. What Orbax writes besides arrays has times in it, and
names of this machine's folders, which are taken out.
"""

import contextlib
import json
import pathlib
import shutil
import sys
import tempfile

import jax

from rnn_jax import version
from rnn_jax.runs import origin
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checksums
from rnn_jax.training import loop
from tests.kept_runs import answers
from tests.kept_runs import data
from tests.kept_runs import kinds
from tests.support import launchers
from tests.support import tiny

ANSWERS = 'answers.json'
# What a run needs to resume, and to be used.
NEEDED = (
  workdir_lib.CONFIG,
  workdir_lib.CHECKPOINTS,
  workdir_lib.WEIGHTS,
  *workdir_lib.KEPT,
)
MARK = 'commit_success.txt'  # of Orbax: it names the folder


def make(folder: pathlib.Path) -> None:
  """Makes a folder of data, runs and answers."""
  with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
    data.write(pathlib.Path('data'))
    for kind in kinds.KINDS:
      _make_run(kind)
    found = {kind: answers.of(kind, pathlib.Path()) for kind in kinds.KINDS}
    text = json.dumps(found, indent=1, sort_keys=True) + '\n'
    pathlib.Path(ANSWERS).write_text(text)
    shutil.copytree('.', folder)


def _make_run(name):
  kind = kinds.KINDS[name]
  if kind.weights:
    _pack(name, kind)
  else:
    init = origin.Init(kind.base) if kind.base else None
    start = loop.Start(init=init, pause_at=kinds.STEPS - 1)
    loop.train(kinds.config(kind), name, start=start)
  _tidy(pathlib.Path(name), kind)


def _pack(name, kind):
  code, _, error = launchers.run_file(
    tiny.ROOT / 'launch' / 'quantize.py',
    f'--workdir={kind.base}',
    f'--format={kind.weights}',
    f'--output={name}',
    folder='.',
  )
  assert code == 0, error


def _tidy(run, kind):
  """Leaves what is needed, without the names of folders."""
  for path in run.iterdir():
    if path.name not in NEEDED:
      path.unlink()
  for path in run.rglob(MARK):
    path.write_text('')
  for seal in run.rglob(checksums.NAME):
    checksums.write(seal.parent)
  if (run / origin.NAME).exists():
    record = origin.read(run) | {'run': kind.base}
    (run / origin.NAME).write_text(json.dumps(record, indent=1) + '\n')


if __name__ == '__main__':
  to = answers.ROOT / version.__version__
  if to.exists():
    sys.exit(f'{to} exists: a version has one folder of kept runs')
  jax.config.update('jax_platforms', 'cpu')
  make(to)
