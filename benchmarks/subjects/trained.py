"""A model trained on a config, for what is measured on its parameters."""

import functools
import tempfile
import time
from typing import NamedTuple

import jax

from benchmarks.subjects import models
from configs import recall
from rnn_jax import config as config_lib
from rnn_jax.data import pipeline
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import evaluate
from rnn_jax.training import step as step_lib

# Names of the reports: a model of configs/recall.py, and what is set besides.
MODELS = {
  'SimpleRNN': ('simple_rnn', {}),
  'SimpleRNN, simple': ('simple', {}),
  'attention, window 32': ('attention', {'window': 32}),
  'attention, full': ('attention', {}),
}


class Trained(NamedTuple):
  """What training leaves behind."""

  task: object
  params: dict
  corpus: pipeline.Corpus
  values: dict  # of the row; `held_out` are metrics on the validation split


def raw_config(model):
  """The config of one of MODELS, to be changed further."""
  name, options = MODELS[model]
  raw = recall.get_config(name)
  raw.cell.update(options)
  return raw


def train(raw) -> Trained:
  """Trains for `train.steps` steps and evaluates; for 0 it does neither."""
  steps, raw.train.steps = raw.train.steps, max(1, raw.train.steps)
  raw.schedule.warmup_steps = min(raw.schedule.warmup_steps, raw.train.steps)
  config = config_lib.parse(raw)
  with tempfile.TemporaryDirectory() as folder:
    corpus = pipeline.Corpus.open(config, folder)
  made = step_lib.from_config(config, corpus.tokenizer)
  place = functools.partial(mesh_lib.put, shardings=made.batch_sharding)
  batches = pipeline.training_batches(corpus, config, place=place)
  state = made.init(config.train.seed, config.data.batch_size)
  begin = time.perf_counter()
  for _ in range(steps):
    state, _ = made.train(state, next(batches))
  params = jax.block_until_ready(state['params'])
  seconds = time.perf_counter() - begin
  batches.close()
  values = {'weights': models.count(params), 'steps': steps}
  if steps:
    values |= {
      'training_seconds': seconds,
      'held_out': evaluate.evaluate(made, params, corpus, config, 'validation'),
    }
  return Trained(made.task, params, corpus, values)
