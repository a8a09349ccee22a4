"""What a benchmark is made of.

A benchmark is a file of benchmarks/suites with

  cases(quick)          a list of Case; `quick` asks for small sizes, to see
                        that everything runs
  its workloads         functions that measure and return a row's values
  report(rows, plots)   yields paragraphs of Markdown on the measured rows

and, where they are needed, TIMED = True (its figures are times: they are
measured between reference steps, see comparison.py), PLATFORM ('cpu' or 'gpu':
it is refused elsewhere), compiles_ahead(case) (it can be rehearsed; whether the
case's workload compiles for a GPU that isn't attached), and select(rows) and
provenance(rows) in the place of tables.newest and tables.provenance. A report
begins with the provenance and ends with the failures that it doesn't name.

A case names a workload: a function of that file, of benchmarks/workloads or of
the fuzzer, tests/faults. It runs in a process of its own. The process that
starts these must leave a GPU and the memory to them, and the report needs
neither: both import suites, so a suite imports jax, PyTorch and what loads them
inside of its workloads.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import pkgutil
from types import ModuleType

from benchmarks.harness import measure
from rnn_jax import errors

PUBLISHED_WEIGHTS = 189_504
FUZZER = 'tests.faults'
PYTHON = 'BENCHMARK_PYTHON'  # the variable that other_python() reads


@dataclasses.dataclass(frozen=True)
class Case:
  """One measurement, made in a process of its own."""

  name: str
  workload: str  # 'folder.module.function' below benchmarks, or of FUZZER
  parameters: measure.Values = dataclasses.field(default_factory=dict)
  repeats: int = 10  # 0: the workload takes no such argument
  environment: dict[str, str] = dataclasses.field(default_factory=dict)
  core_limit: int = 0  # how many cores the process may use; 0: all
  platform: str = ''  # the one it needs; '': any
  timeout: float = 900.0  # seconds, of a turn or of all without turns
  base: str = ''  # what it is compared with (comparison.py); its own name: ''
  rehearsal: str = ''  # how it is rehearsed (rehearsal.py); '': it isn't
  interpreter: str = ''  # the Python that runs it; '': this one

  def identity(self) -> measure.Values:
    """What a row must agree in to be a row of this case; JSON-ready."""
    names = ('workload', 'parameters', 'environment', 'core_limit')
    identity = {name: getattr(self, name) for name in names}
    return json.loads(json.dumps({'case': self.name} | identity))


def other_python() -> str:
  """The interpreter of another environment, see suites/versions.py."""
  default = pathlib.Path(__file__).parents[2] / '.venv-other' / 'bin' / 'python'
  return os.environ.get(PYTHON) or str(default)


def peaks(quick: bool) -> list[Case]:
  """The most that this device can do, as cases."""
  size = 256 if quick else 4096
  return [
    Case(f'peak {kind}', f'workloads.peaks.{kind}', parameters)
    for kind, parameters in (
      ('float32', {'size': size}),
      ('bfloat16', {'size': size}),
      ('bandwidth', {'mebibytes': 8 if quick else 512}),
    )
  ]


def module_of(workload: str) -> str:
  """The module of a workload's function."""
  module = workload.rpartition('.')[0]
  return module if module.startswith(FUZZER) else f'benchmarks.{module}'


def load(name: str, argument: str = '--suite') -> ModuleType:
  """The suite of that name, which `argument` gave.

  Raises:
    InputError: no such suite; the message lists those that exist.
  """
  package = importlib.import_module('benchmarks.suites')
  modules = {
    found.name: f'{package.__name__}.{found.name}'
    for found in pkgutil.iter_modules(package.__path__)
  }
  modules['faults'] = f'{FUZZER}.suite'
  if name not in modules:
    errors.refuse(argument, name, f'choose one of {sorted(modules)}')
  return importlib.import_module(modules[name])
