"""What a figure was made with: the machine, commit, packages' versions."""

import contextlib
import functools
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable

from rnn_jax import checkout


@functools.cache
def machine() -> dict:
  """Returns {"device": its name, "platform", "cores"} of this process."""
  import jax  # a process that starts others must leave a GPU to them

  device = jax.devices()[0]
  name = device.device_kind if device.platform != 'cpu' else _processor()
  cores = len(os.sched_getaffinity(0))
  return {'device': name, 'platform': device.platform, 'cores': cores}


def versions(packages: Iterable[str]) -> dict[str, str]:
  """Returns the versions of those packages that are installed."""
  found = {}
  for name in packages:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found


def commit(excluded: Iterable[str] = ()) -> str | None:
  """Returns the checkout's commit, with '+' where files differ from it.

  Changes in `excluded` paths do not count. None: a copy without its history.
  """
  paths = [f':(top,exclude){path}' for path in excluded]
  try:
    found = _git('rev-parse', '--short=10', 'HEAD')
    changed = _git('status', '--porcelain', '--', *paths)
  except (OSError, subprocess.CalledProcessError):
    return None
  return found + ('+' if changed else '')


def _processor():
  with contextlib.suppress(OSError):
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith('model name'):
        return line.partition(':')[2].strip()
  return platform.processor()


def _git(*arguments):
  git = ['git', '-C', str(checkout.ROOT), *arguments]
  done = subprocess.run(git, capture_output=True, text=True, check=True)
  return done.stdout.strip()
