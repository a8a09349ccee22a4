"""What a figure was made with: the checkout's commit, packages' versions."""

import importlib.metadata
import subprocess
from collections.abc import Iterable

from rnn_jax import checkout


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


def _git(*arguments):
  git = ['git', '-C', str(checkout.ROOT), *arguments]
  done = subprocess.run(git, capture_output=True, text=True, check=True)
  return done.stdout.strip()
