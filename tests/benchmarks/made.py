"""Made-up rows, and the report on them."""

import json
import pathlib

import jax
import numpy as np

from benchmarks import figures
from benchmarks import report
from benchmarks.harness import datasets
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.runs import bundle as bundle_lib

WHERE = {
  'device': 'a processor',
  'platform': 'cpu',
  'cores': 2,
  'python': '3.11',
  'versions': {'jax': '1'},
  'commit': 'abc',
  'time': '2000-01-01T00:00:00',
}


def row(case, seconds=None, **others):
  """A row of a case; without `seconds` nothing was timed."""
  timed = {}
  if seconds is not None:
    keys = ('median', 'mean', 'min')
    timed = dict.fromkeys(keys, seconds) | {'deviation': 0.0, 'repeats': 3}
  return {'case': case, 'parameters': {}, **timed, **WHERE, **others}


def failed(case, error, **others):
  """A row of a case that failed."""
  return row(case, failure='exception', error=error, **others)


def write(folder, suite, rows):
  """Writes the file of a suite's rows."""
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  pathlib.Path(folder, f'{suite}.jsonl').write_text(lines)


def section(folder, suite, rows):
  """The report of a suite on these rows; its pictures are in folder/plots."""
  write(folder, suite, rows)
  return report.section(suite, figures.Source(folder, folder))


def give_data(folder, monkeypatch, text):
  """Sets BENCHMARK_DATA to `text`, whose {path} is a file of 59 rows."""
  path = folder / 'some.jsonl'
  rows = [{'line': 'x' * n} for n in range(1, 60)]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  monkeypatch.setenv(datasets.VARIABLE, text.format(path=path))
  return path


def bundle(config):
  """A model of bytes with random parameters: what it learned is no matter."""
  tokenizer = tokenizer_lib.Bytes()
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.1, x.shape).astype(np.float32),
    bundle_lib.like(config, tokenizer),
  )
  return bundle_lib.make(config, tokenizer, params)
