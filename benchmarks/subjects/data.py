"""The input pipeline alone, the training step alone, and both together."""

import functools
import importlib
import itertools
import tempfile
import time

import jax
import numpy as np

from benchmarks import measure
from rnn_jax import config as config_lib
from rnn_jax.data import pipeline
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import step as step_lib

WARMUPS = 3


def alone(repeats, config, steps, overrides=None):
  """Seconds a batch of the input pipeline, with nobody to compute on it."""
  with _Run(config, overrides) as run:
    return _summary(run, repeats, steps, lambda: run.count(run.next()))


def step_alone(repeats, config, steps, overrides=None):
  """Seconds a training step on batches that are there already."""
  with _Run(config, overrides) as run:
    kept = itertools.cycle([run.next() for _ in range(steps)])
    return _summary(run, repeats, steps, lambda: run.train(next(kept)))


def both(repeats, config, steps, overrides=None):
  """Seconds a training step as in a run, and the share of waiting for data."""
  with _Run(config, overrides) as run:
    waited, total = 0.0, 0.0

    def turn():
      nonlocal waited, total
      begin = time.perf_counter()
      batch = run.next()
      ready = time.perf_counter()
      done = run.train(batch)
      waited += ready - begin
      total += time.perf_counter() - begin
      return done

    values = _summary(run, repeats, steps, turn)
    return values | {'waiting_share': waited / total}


def _summary(run, repeats, steps, turn):
  """Times `repeats` runs of `steps` turns, each of which returns its tokens."""
  for _ in range(WARMUPS * len(run.shapes)):
    turn()
  seconds, tokens = [], 0
  for _ in range(repeats):
    begin = time.perf_counter()
    for _ in range(steps):
      tokens += turn()
    seconds.append((time.perf_counter() - begin) / steps)
  values = measure.summarize(seconds)
  rate = tokens / (values['mean'] * steps * repeats)
  return values | {'tokens_per_second': rate, 'shapes': run.shapes}


class _Run:
  """The parts of a training run on a config file, in a folder of its own."""

  def __init__(self, config, overrides):
    raw = importlib.import_module(f'configs.{config}').get_config()
    for key, value in (overrides or {}).items():
      section, _, name = key.partition('.')
      raw[section][name] = value
    self._config = config_lib.parse(raw)

  def __enter__(self):
    self._folder = tempfile.TemporaryDirectory()
    corpus = pipeline.Corpus.open(self._config, self._folder.name)
    self._steps = step_lib.from_config(self._config, corpus.tokenizer)
    self.shapes = pipeline.batch_shapes(corpus, self._config)
    rows = max(rows for rows, _ in self.shapes)
    self._state = self._steps.init(0, rows)
    self._batches = pipeline.training_batches(
      corpus,
      self._config,
      place=functools.partial(
        mesh_lib.put, shardings=self._steps.batch_sharding
      ),
    )
    return self

  def __exit__(self, *error):
    self._batches.close()
    self._folder.cleanup()

  def next(self):
    """The next batch, on its device."""
    return jax.block_until_ready(next(self._batches))

  @staticmethod
  def count(batch):
    """How many tokens a batch holds, padding left out."""
    return float(np.asarray(batch.weights_BxL).sum())

  def train(self, batch):
    """A step, to its end. Returns how many tokens it read."""
    self._state, metrics = self._steps.train(self._state, batch)
    return float(metrics['sums']['weight'])
