"""Small models of one dialogue: one that has learnt it by heart, or random."""

import json

from rnn_jax import config as config_lib
from rnn_jax.data.text import turns
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import loop
from tests.support import bundles
from tests.support import tiny

TURNS = ['how are you', 'very well', 'where is it', 'over there']


def train(folder):
  """Trains a model in that folder. Returns the run's folder."""
  raw = _raw_config(folder, TURNS)
  raw.model.width = 32
  raw.optimizer.learning_rate = 2e-2
  raw.train.update(steps=60, checkpoint_every=60)
  raw.evaluate.every = 0
  loop.train(config_lib.parse(raw), str(folder / 'run'))
  return folder / 'run'


def write(folder, tokenizer):
  """Writes a random model whose tokenizer frames turns. Returns as `train`."""
  messages = [message._asdict() for message in turns.alternate(TURNS)]
  raw = _raw_config(folder, messages)
  raw.data.update(tokenizer='pretrained', vocabulary=tokenizer.size)
  raw.data.update(length=128, boundaries=(128,))
  bundle_lib.write(bundles.make(raw, tokenizer), folder / 'run')
  return folder / 'run'


def _raw_config(folder, dialogue):
  row = json.dumps({'turns': dialogue})
  (folder / 'all.jsonl').write_text('\n'.join([row] * 12))
  raw = tiny.raw_config(str(folder / 'all.jsonl'))
  raw.task.update(name='dialogue', reply_tokens=20)
  raw.data.update(source='jsonl', field='turns', length=64, boundaries=(64,))
  raw.model.layers = 1
  return raw
