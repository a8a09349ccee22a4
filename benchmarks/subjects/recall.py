"""How many answers a small model gets right, trained on one distance."""

import collections

from benchmarks.subjects import trained
from rnn_jax import config as config_lib
from rnn_jax.data.examples import recall as recall_examples
from rnn_jax.data.sources import recall as recall_source


def answers(
  repeats, model, source, distance, pairs=4, symbols=8, steps=400, seed=0
):
  """Trains on fresh texts and counts right answers on held-out ones.

  `repeats` is of no use here: another seed is another case.
  """
  del repeats
  options = {'pairs': pairs, 'distance': distance, 'symbols': symbols}
  return learn(trained.raw_config(model), source, options, steps, seed)


def learn(raw, source, options, steps, seed=0):
  """As `answers`, of a config's model; `options` are data.synthetic's."""
  synthetic = raw.data.synthetic
  raw.train.update(steps=steps, seed=seed)
  raw.data.source = source
  synthetic.update(
    **options,
    seed=seed,
    examples=steps * raw.data.batch_size * 20 // 19 + 20,
  )
  raw.data.splits = (95, 5, 0)
  asked = 6 if source == 'recall' else 2
  length = synthetic.distance + asked * synthetic.pairs + (source != 'recall')
  raw.data.update(length=length, boundaries=(length,))
  if raw.cell.get('window', 0) > length:
    raw.cell.window = 0
  run = trained.train(raw)
  return run.values | {'chance': 1 / synthetic.symbols, 'length': length}


def elimination(repeats, distance, pairs=4, symbols=8, examples=2000):
  """What is right without looking at any key: values told, less those asked.

  Of the values that are left, the most frequent one is the best guess.
  """
  del repeats
  options = config_lib.Synthetic(pairs, distance, symbols, examples)
  data = config_lib.Data(source='recall', synthetic=options)
  texts = recall_source.load(data)['train']
  right = 0
  for n in range(len(texts)):
    text = texts.read(n).decode()
    left = collections.Counter(text[1 : 2 * pairs : 2])
    for answer in recall_examples.ANSWER.findall(text):
      right += left.most_common(1)[0][0] == answer
      left[answer] -= 1
  share = right / (pairs * len(texts))
  held_out = {
    'exact': share,
    'accuracy': share,
    'tokens': pairs * len(texts),
  }
  return {'weights': 0, 'steps': 0, 'chance': 1 / symbols, 'held_out': held_out}
