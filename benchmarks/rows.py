"""Rows of measurements: JSON lines in benchmarks/results/, never rewritten.

Each row carries what its figures depend on: device, versions, commit, time.
"""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess

import jax

RESULTS = pathlib.Path(__file__).parent / 'results'
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy')


def append(name, values):
  """Adds a row to benchmarks/results/<name>.jsonl. Returns the row."""
  row = {**values, **environment()}
  RESULTS.mkdir(exist_ok=True)
  with (RESULTS / f'{name}.jsonl').open('a') as file:
    file.write(json.dumps(row) + '\n')
  return row


def environment():
  """The device, versions and commit of this process."""
  versions = {name: importlib.metadata.version(name) for name in PACKAGES}
  return {
    'device': _device(),
    'cores': len(os.sched_getaffinity(0)),
    'python': platform.python_version(),
    'versions': versions,
    'commit': _commit(),
    'time': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
  }


def _device():
  device = jax.devices()[0]
  if device.platform != 'cpu':
    return device.device_kind
  for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
    if line.startswith('model name'):
      return line.partition(':')[2].strip()
  return platform.processor()


def _commit():
  """The checkout's commit, with '+' where files differ from it."""
  git = ['git', '-C', str(RESULTS.parent)]
  commit = subprocess.run(
    [*git, 'rev-parse', '--short=10', 'HEAD'],
    capture_output=True,
    text=True,
    check=True,
  ).stdout.strip()
  status = subprocess.run(
    [*git, 'status', '--porcelain', '--', ':!benchmarks/results'],
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  return commit + ('+' if status.strip() else '')
