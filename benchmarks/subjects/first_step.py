"""From the start of a command to the end of its first training step."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from benchmarks import measure

ROOT = pathlib.Path(__file__).parents[2]


def started(repeats, config, overrides, cached=False):
  """Seconds from the start of launch.train to its first step, a dict.

  With `cached` its programs were compiled by an earlier process.

  Raises:
    RuntimeError: the command ended before its first step.
  """
  with tempfile.TemporaryDirectory() as folder:
    programs = pathlib.Path(folder, 'programs') if cached else ''
    flags = [f'--config.{key}={value}' for key, value in overrides.items()]

    def run():
      with tempfile.TemporaryDirectory() as workdir:
        _first_step(
          f'--config=configs/{config}.py',
          f'--workdir={workdir}/run',
          f'--compilation_cache={programs}',
          *flags,
        )

    return measure.repeat(run, repeats, warmups=1)


def _first_step(*flags):
  """Trains until the first step is reported."""
  process = subprocess.Popen(
    [sys.executable, '-u', '-m', 'launch.train', *flags],
    cwd=ROOT,
    env={**os.environ, 'JAX_ENABLE_COMPILATION_CACHE': 'true'},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  lines = []
  try:
    for line in process.stdout:
      if line.startswith('first step after'):
        return
      lines.append(line)
    raise RuntimeError(f'no first step: {"".join(lines[-1:]).strip()}')
  finally:
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
