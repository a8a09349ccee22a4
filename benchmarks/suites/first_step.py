"""From the command to its first training step, with and without kept programs.

The main job, as `make train` runs it.

  python -m benchmarks.run --suite=first_step
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.harness import workers

TIMED = True

TINY = {'model.layers': 1, 'model.width': 16, 'model.mlp_width': 16}


def cases(quick: bool) -> list[case.Case]:
  """A cold start and a warm one."""
  return [
    case.Case(
      f'main job: {name}',
      'suites.first_step.started',
      {'overrides': TINY if quick else {}, 'cached': cached},
      repeats=1 if quick else 5,
      base='main job: cold',
    )
    for name, cached in (('cold', False), ('warm', True))
  ]


def started(
  repeats: int, overrides: tables.Row, cached: bool
) -> dict[str, float]:
  """Seconds from the start of launch.train to its first step.

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
          '--config=configs/stdlib_bytes.py',
          f'--workdir={workdir}/run',
          f'--compilation_cache={programs}',
          *flags,
        )

    return measure.repeat(run, repeats, warmups=1)


def _first_step(*flags):
  """Trains until the first step is reported."""
  process = subprocess.Popen(
    [sys.executable, '-u', '-m', 'launch.train', *flags],
    cwd=workers.ROOT,
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


COLUMNS = {
  'to the first step': tables.timed,
  'fastest': lambda row: tables.seconds(row['min']),
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each start."""
  starts = {n: row for n, row in rows.items() if n.startswith('main job')}
  yield tables.by_row('what', starts, COLUMNS)
