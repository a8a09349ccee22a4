"""What a suite is made of.

A suite is a file of benchmarks/suites with `cases(quick)`, a list of Case; a
case names a function of benchmarks/subjects and what to call it with. `quick`
asks for small sizes, to see that everything runs. A suite that makes no sense
without a GPU says PLATFORM = 'gpu'.
"""

import dataclasses
import importlib
import json
import pkgutil

from rnn_jax import errors

PUBLISHED_WEIGHTS = 189_504


@dataclasses.dataclass(frozen=True)
class Case:
  """One measurement, made in a process of its own."""

  name: str
  subject: str  # 'module.function' of benchmarks/subjects
  parameters: dict = dataclasses.field(default_factory=dict)
  repeats: int = 10  # the subject may say what it repeats
  environment: dict = dataclasses.field(default_factory=dict)  # variables
  core_limit: int = 0  # of those that this process may use; 0: all
  platform: str = ''  # 'gpu': needs one
  timeout: float = 900.0  # seconds

  def identity(self):
    """What a row must agree in to be a row of this case; JSON-ready."""
    names = ('subject', 'parameters', 'environment', 'core_limit')
    identity = {name: getattr(self, name) for name in names}
    return json.loads(json.dumps({'case': self.name} | identity))


def framed(cases, quick):
  """`cases` between two runs of one reference: how far the same thing varies.

  The reference is a training step of the published model.
  """
  parameters = {'batch': 2, 'length': 32} if quick else {}
  first, last = (
    Case(f'reference, {when}', 'ours.train_step', parameters)
    for when in ('first', 'last')
  )
  return [first, *cases, last]


def peaks(quick):
  """What this device can do at most, as cases."""
  size = 256 if quick else 4096
  return [
    Case(f'peak {kind}', f'peaks.{kind}', parameters)
    for kind, parameters in (
      ('float32', {'size': size}),
      ('bfloat16', {'size': size}),
      ('bandwidth', {'mebibytes': 8 if quick else 512}),
    )
  ]


def load(name):
  """The suite of that name, a module.

  Raises:
    InputError: there is none; the message lists those that exist.
  """
  package = importlib.import_module('benchmarks.suites')
  names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
  if name not in names:
    raise errors.InputError(f'--suite={name!r}: choose one of {names}')
  return importlib.import_module(f'benchmarks.suites.{name}')
