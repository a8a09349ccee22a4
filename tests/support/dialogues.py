"""A small model that has learnt one dialogue by heart."""

import json

from rnn_jax import config as config_lib
from rnn_jax.data.text import turns
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import origin
from rnn_jax.training import loop
from tests.support import bundles
from tests.support import tiny

TURNS = ['how are you', 'very well', 'where is it', 'over there']


def train(folder, tokenizer=None):
  """Trains it in that folder. Returns the run's folder.

  With a `tokenizer`, which frames turns, the rows are messages, and the run
  begins with a model that has it.
  """
  row = json.dumps({'turns': TURNS})
  if tokenizer:
    messages = [message._asdict() for message in turns.alternate(TURNS)]
    row = json.dumps({'turns': messages})
  (folder / 'all.jsonl').write_text('\n'.join([row] * 12))
  raw = tiny.raw_config(str(folder / 'all.jsonl'))
  raw.task.update(name='dialogue', reply_tokens=20)
  raw.data.update(source='jsonl', field='turns', length=64)
  raw.model.update(layers=1, width=32)
  raw.optimizer.learning_rate = 2e-2
  raw.train.update(steps=60, checkpoint_every=60)
  raw.evaluate.every = 0
  workdir, start = folder / 'run', loop.Start()
  if tokenizer:
    raw.data.update(tokenizer='pretrained', vocabulary=tokenizer.size)
    raw.data.length = 128
    bundle_lib.write(bundles.make(raw, tokenizer), folder / 'base')
    start = loop.Start(init=origin.Init(str(folder / 'base')))
  loop.train(config_lib.parse(raw), str(workdir), start=start)
  return workdir
