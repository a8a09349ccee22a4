"""The first steps of the default job with any optimizer."""

import functools
import tempfile
import time

import jax

from benchmarks import measure
from configs import stdlib_bytes
from rnn_jax import config as config_lib
from rnn_jax.data import pipeline
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import evaluate
from rnn_jax.training import memory
from rnn_jax.training import step as step_lib

EVERY = 10  # steps whose losses are one point of a curve


def compare(repeats, changes, steps, width=0):
  """Losses by step, on held-out text, bytes of state, seconds a step.

  Args:
    repeats: unused: it is the steps that are timed.
    changes: keys of the config's section `optimizer`.
    steps: how many of them.
    width: of the model; 0: the job's.
  """
  del repeats
  config = _config(changes, steps, width)
  with tempfile.TemporaryDirectory() as folder:
    corpus = pipeline.Corpus.open(config, folder)
  made = step_lib.from_config(config, corpus.tokenizer)
  place = functools.partial(mesh_lib.put, shardings=made.batch_sharding)
  batches = pipeline.training_batches(corpus, config, place=place)
  state = made.init(config.train.seed, config.data.batch_size)
  sizes = {
    'state_bytes': memory.tree_bytes(state['optimizer']),
    'parameter_bytes': memory.tree_bytes(state['params']),
  }
  seconds, sums = [], []
  for _ in range(steps):
    batch = next(batches)
    begin = time.perf_counter()
    state, values = made.train(state, batch)
    jax.block_until_ready(values)
    seconds.append(time.perf_counter() - begin)
    sums.append(jax.device_get(values['sums']))
  batches.close()
  return {
    **measure.summarize(seconds[1:]),  # the first one compiles
    **sizes,
    'steps': steps,
    'losses': [
      [n + len(part), _loss(part)]
      for n in range(0, steps, EVERY)
      if (part := sums[n : n + EVERY])
    ],
    'held_out': evaluate.evaluate(
      made, state['params'], corpus, config, 'validation'
    ),
  }


def _config(changes, steps, width):
  raw = stdlib_bytes.get_config()
  raw.data.splits = (98, 1, 1)
  raw.optimizer.update(changes)
  raw.schedule.update(
    name='constant' if changes['name'] == 'schedule_free' else 'cosine',
    warmup_steps=steps // 10,
    final_learning_rate=changes['learning_rate'] / 10,
  )
  raw.train.steps = steps
  if width:
    raw.model.update(width=width, mlp_width=width)
  return config_lib.parse(raw)


def _loss(sums):
  """Nats a token over some steps."""
  total = sum(float(x['weight']) for x in sums)
  return sum(float(x['loss']) for x in sums) / total
