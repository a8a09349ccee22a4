"""Rows of measurements: JSON lines in benchmarks/results/, never rewritten.

Each row carries what its figures depend on: device, versions, commit, time.
"""

import datetime
import json
import os
import pathlib
import platform

from benchmarks.harness import measure
from rnn_jax.system import files
from rnn_jax.system import provenance

RESULTS = pathlib.Path(__file__).parents[1] / 'results'
PACKAGES = (
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'numpy',
  'torch',
  'neuralforecast',
  'gluonts',
)
# What these commands write doesn't change what they measure.
WRITTEN = ('benchmarks/results', 'docs')
COMMIT = 'BENCHMARK_COMMIT'  # of code that isn't in a checkout


def append(
  name: str,
  values: measure.Values,
  where: measure.Values | None = None,
  folder: str | os.PathLike = RESULTS,
) -> measure.Values:
  """Adds a row to <folder>/<name>.jsonl and returns it.

  It was measured on the machine `where`; None: on this one.
  """
  now = datetime.datetime.now(datetime.UTC)
  row = {**values, **(environment() if where is None else where)}
  row['time'] = now.isoformat(timespec='seconds')
  pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
  with (pathlib.Path(folder) / f'{name}.jsonl').open('a') as file:
    file.write(files.to_json(row) + '\n')
  return row


def read(
  name: str, folder: str | os.PathLike = RESULTS
) -> list[measure.Values]:
  """The rows of <folder>/<name>.jsonl, the oldest first."""
  path = pathlib.Path(folder) / f'{name}.jsonl'
  lines = path.read_text().splitlines() if path.exists() else []
  return [json.loads(line) for line in lines]


def environment() -> measure.Values:
  """The device, versions and commit of this process."""
  return {
    **provenance.machine(),
    'python': platform.python_version(),
    'versions': provenance.versions(PACKAGES),
    'commit': os.environ.get(COMMIT) or provenance.commit(WRITTEN) or 'unknown',
  }
