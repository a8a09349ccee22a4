"""A small model that has learnt one dialogue by heart."""

import json

from rnn_jax import config as config_lib
from rnn_jax.training import loop
from tests.support import tiny

TURNS = ['how are you', 'very well', 'where is it', 'over there']


def train(folder):
  """Trains it in that folder. Returns the run's folder."""
  row = json.dumps({'turns': TURNS})
  (folder / 'all.jsonl').write_text('\n'.join([row] * 12))
  raw = tiny.raw_config(str(folder / 'all.jsonl'))
  raw.task.update(name='dialogue', reply_tokens=20)
  raw.data.update(source='jsonl', field='turns', length=64)
  raw.model.update(layers=1, width=32)
  raw.optimizer.learning_rate = 2e-2
  raw.train.update(steps=60, checkpoint_every=60)
  raw.evaluate.every = 0
  workdir = folder / 'run'
  loop.train(config_lib.parse(raw), str(workdir))
  return workdir
