"""What virtual.call runs for test_plan.py: the launcher on eight devices."""

import pathlib
import tempfile

from tests.support import launchers
from tests.support import tiny


def eight():
  """Returns (exit code, stdout, stderr) of a plan for a mesh of eight."""
  return _plan('v5e')


def for_a_gpu():
  """The same, by the compiler of a GPU."""
  return _plan('h100')


def _plan(target):
  with tempfile.TemporaryDirectory() as folder:
    raw = tiny.raw_config('no dataset is read')
    raw.recurrence.impl = 'scan'  # the smallest program
    config = tiny.write_config(pathlib.Path(folder, 'config.py'), raw)
    return launchers.run(
      'plan',
      f'--config={config}',
      '--mesh=data=4,fsdp=2',
      '--devices=8',
      '--rows=32',
      f'--target={target}',
      '--json',
    )
