"""The provenance of a measurement: machine, commit, versions of packages."""

import contextlib
import functools
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterable

from rnn_jax.system import processor
from rnn_jax.system import shipped
from rnn_jax.system import subprocesses


@functools.cache
def machine() -> dict[str, str | int]:
  """Returns {'device': its name, 'platform', 'cores'} of this process."""
  import jax  # late: importing it may take a GPU that other processes need

  device = jax.devices()[0]
  name = device.device_kind if device.platform != 'cpu' else processor_name()
  cores = processor.cores()
  return {'device': name, 'platform': device.platform, 'cores': cores}


def versions(packages: Iterable[str]) -> dict[str, str]:
  """Returns {package: version} of the packages that are installed."""
  installed = {}
  for name in packages:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      installed[name] = importlib.metadata.version(name)
  return installed


def commit(excluded: Iterable[str] = ()) -> str | None:
  """Returns the checkout's commit, with '+' if files differ from it.

  Args:
    excluded: paths whose changes don't count.

  Returns:
    The abbreviated hash; None if this isn't a Git checkout.
  """
  if shipped.INSTALLED:
    return None  # an environment in the user's own checkout
  paths = [f':(top,exclude){path}' for path in excluded]
  try:
    head = _git('rev-parse', '--short=10', 'HEAD')
    changed = _git('status', '--porcelain', '--', *paths)
  except (OSError, subprocess.CalledProcessError):
    return None
  return head + ('+' if changed else '')


def processor_name() -> str:
  """Returns a CPU's name, as in 'AMD EPYC, AVX-512'.

  On virtual machines, processors of very different speeds have the same model.
  """
  model = platform.processor() or platform.machine()
  with contextlib.suppress(OSError):
    for line in processor.CPUINFO.read_text().splitlines():
      if line.startswith('model name'):
        model = line.partition(':')[2].strip()
        break
  return f'{model}, {processor.vectors()}'


def _git(*arguments):
  git = ['git', '-C', str(subprocesses.ROOT), *arguments]
  result = subprocess.run(git, capture_output=True, text=True, check=True)
  return result.stdout.strip()
