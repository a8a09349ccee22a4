"""Runs the suite of a GPU without one: its first run on a GPU isn't the first.

Each case runs on the CPU at the sizes of --quick, kernels interpreted. Where
the packages of cuda12 or cuda13 are installed, a case whose workload compiles
by programs.compile_ahead does so again at its full sizes for TARGET, which
isn't attached: its row then has what the kernels take of a multiprocessor and
the memory of the program. No row of a rehearsal has a time.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from types import ModuleType

from benchmarks.harness import case as case_lib
from benchmarks.harness import measure
from benchmarks.harness import workers

INTERPRETED = 'interpreted'
TARGET = 'h100'
PATIENCE = 600.0  # seconds: compiling for a GPU takes longer on few cores
KEPT = ('failure', 'error', 'checks', 'passed', 'errors', 'bound')
# The CUDA plugin would look for a driver; a GPU doesn't have the C++ library.
VARIABLES = {'JAX_PLATFORMS': 'cpu', 'RNN_JAX_NATIVE': '0'}


class Compiled(Exception):
  """A program was compiled for a GPU that isn't attached: nothing can run.

  Attributes:
    values: of the program.
  """

  def __init__(self, values: measure.Values) -> None:
    super().__init__("what was compiled for another machine can't run")
    self.values = values


def run(suite: ModuleType, case: case_lib.Case) -> measure.Values:
  """Returns the row of a rehearsal of a case at the sizes of --quick."""
  ran = _run(case, INTERPRETED)
  row = {'rehearsal': {}} | {key: ran[key] for key in KEPT if key in ran}
  if suite.compiles_ahead(case):
    (whole,) = (one for one in suite.cases(False) if one.name == case.name)
    row['rehearsal'] = {TARGET: _run(whole, TARGET)}
  return row


def summary(row: measure.Values) -> str:
  """Returns a rehearsal in a few words."""
  said = row.get('error', 'ran interpreted')
  for name, values in row['rehearsal'].items():
    if 'error' in values:
      said += f'; for {name}: {values["error"]}'
    else:
      said += (
        f'; for {name}: {values["kernels"]} kernels, up to '
        f'{values["registers"]} registers, {values["spilled"]} bytes spilled'
      )
  return said


def _run(case, how):
  case = dataclasses.replace(
    case,
    environment={**case.environment, **VARIABLES},
    rehearsal=how,
    repeats=min(case.repeats, 1),
    timeout=PATIENCE,
  )
  return workers.run(case)


@contextlib.contextmanager
def mode(name: str) -> Iterator[None]:
  """Within, a workload is rehearsed that way; '' changes nothing."""
  from rnn_jax.ops.gla import pallas
  from rnn_jax.system import target

  with contextlib.ExitStack() as stack:
    if name == INTERPRETED:
      stack.enter_context(pallas.interpret('mosaic'))
    elif name:
      stack.enter_context(target.using(name))
    yield
