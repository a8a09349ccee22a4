"""Rows of measurements: JSON lines in benchmarks/results/, never rewritten.

Each row carries what its figures depend on: device, versions, commit, time.
"""

import datetime
import json
import pathlib
import platform

from rnn_jax import provenance

RESULTS = pathlib.Path(__file__).parent / 'results'
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy', 'torch')
# What the commands of this folder write is no change of what they measure.
WRITTEN = ('benchmarks/results', 'docs')


def append(name, values, where=None, folder=RESULTS):
  """Adds a row to <folder>/<name>.jsonl, from the machine `where` or this one.

  Returns the row.
  """
  now = datetime.datetime.now(datetime.UTC)
  row = {**values, **(environment() if where is None else where)}
  row['time'] = now.isoformat(timespec='seconds')
  pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
  with (pathlib.Path(folder) / f'{name}.jsonl').open('a') as file:
    file.write(json.dumps(row) + '\n')
  return row


def read(name, folder=RESULTS):
  """The rows of <folder>/<name>.jsonl, the oldest first; a list."""
  path = pathlib.Path(folder) / f'{name}.jsonl'
  lines = path.read_text().splitlines() if path.exists() else []
  return [json.loads(line) for line in lines]


def environment():
  """The device, versions and commit of this process."""
  return {
    **provenance.machine(),
    'python': platform.python_version(),
    'versions': provenance.versions(PACKAGES),
    'commit': provenance.commit(WRITTEN) or 'unknown',
  }
