"""A training run in memory, for what is measured on its steps."""

import tempfile
import time
from typing import Any
from typing import NamedTuple

import jax

from benchmarks.harness import measure
from rnn_jax import config as config_lib
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.training import evaluate
from rnn_jax.training import programs as programs_lib


class Step(NamedTuple):
  """One training step."""

  waiting: float  # seconds until its batch was there
  seconds: float  # after that
  sums: dict[str, Any]  # the task's, of the batch: 'loss', 'weight', ...


class Training:
  """A run of a config without a work folder; closed by `with`."""

  def __init__(self, raw: Any):
    self.config = config = config_lib.parse(raw)
    with tempfile.TemporaryDirectory() as folder:
      self.corpus = corpus_lib.Corpus.open(config, folder)
    self.programs = programs_lib.from_config(config, self.corpus.tokenizer)
    self.shapes = pipeline.batch_shapes(self.corpus, config)
    rows = max(rows for rows, _ in self.shapes)
    self.state = self.programs.states.init(rows)
    self._batches = pipeline.training_batches(
      self.corpus,
      config,
      place=self.programs.put,
    )

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._batches.close()

  @property
  def params(self) -> measure.Values:
    """The model's parameters."""
    return self.state.params

  def next(self) -> batch_lib.Batch:
    """The next batch, on its device."""
    return jax.block_until_ready(next(self._batches))

  def train(self, batch: batch_lib.Batch) -> dict[str, Any]:
    """A step, to its end. Returns the task's sums of the batch."""
    self.state, metrics = self.programs.train_step(self.state, batch)
    return jax.device_get(metrics['sums'])

  def step(self) -> Step:
    """A step on the next batch."""
    begin = time.perf_counter()
    batch = self.next()
    ready = time.perf_counter()
    sums = self.train(batch)
    return Step(ready - begin, time.perf_counter() - ready, sums)

  def evaluate(self) -> dict[str, float]:
    """The task's metrics on the validation split."""
    parts = self.corpus, self.programs, self.params
    return evaluate.Run(self.config, *parts, 0).evaluate('validation')
