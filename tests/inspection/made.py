"""A tiny task with parameters, and batches of random tokens."""

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer

TOKENIZER = tokenizer.Characters('abcdefghij')


def config(cell='simple_rnn', **changes):
  """A Config; `changes` are those of section__key."""
  raw = config_lib.default(cell)
  raw.model.update(layers=2, width=6)
  if cell == 'simple_rnn':
    raw.cell.update(heads=2, key_width=3, value_width=2)
  raw.data.update(length=16, batch_size=2)
  raw.schedule.warmup_steps = 0
  for name, value in changes.items():
    section, _, key = name.partition('__')
    raw[section].update({key: value})
  return config_lib.parse(raw)


def task(config):
  """Returns (the task of a Config, random parameters)."""
  module = config_lib.load('tasks', config.task.name, 'task.name')
  made = module.make(config, TOKENIZER)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: np.float32(rng.normal(0, 0.3, x.shape)),
    jax.eval_shape(made.init_parameters, jax.random.key(0)),
  )
  return made, params


def batch(lengths=(9, 9), steps=9):
  """Rows with a target at each of their first so many steps."""
  rng = np.random.default_rng(0)
  shape = len(lengths), steps + 1
  ids = rng.integers(0, TOKENIZER.size, shape).astype(np.int32)
  weights = np.arange(steps)[None] < np.array(lengths)[:, None]
  starts = np.zeros(weights.shape, np.int32)
  starts[:, 0] = 1
  return batch_lib.Batch(
    ids[:, :-1], ids[:, 1:], weights.astype(np.float32), starts
  )
