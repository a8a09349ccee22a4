"""What virtual.call runs for test_plan.py: the launcher on eight devices."""

import pathlib
import tempfile

from tests.support import launchers
from tests.support import tiny


def eight():
  """Returns (exit code, stdout, stderr) of a plan for a mesh of eight."""
  with tempfile.TemporaryDirectory() as folder:
    raw = tiny.raw_config('no dataset is read')
    config = tiny.write_config(pathlib.Path(folder, 'config.py'), raw)
    return launchers.run(
      'plan',
      f'--config={config}',
      '--mesh=data=4,fsdp=2',
      '--devices=8',
      '--rows=32',
      '--target=v5e',
      '--json',
    )
