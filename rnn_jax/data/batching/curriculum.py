"""The order of examples from easy to hard.

The half of the examples with the lower difficulty is easy, the other one hard.
Stage i of a training lasts `curriculum_epochs` epochs; in each, easy and hard
examples, both shuffled, alternate so that a share s_i of those drawn is easy,
until one half is used up; the other one's rest follows. So every example still
comes exactly once an epoch. Behind the last stage all are shuffled together.

Difficulty is the number of tokens ('length'), the mean surprise of the tokens
under a unigram model of a sample ('rarity'), both as in the first epoch, or the
number that the source has in column `data.difficulty` ('column').
"""

import functools

import numpy as np

from rnn_jax import errors
from rnn_jax.data.batching import shapes

KINDS = ('', 'length', 'rarity', 'column')  # of difficulty; '': none


class Order:
  """The map from a position in training to an example; the same for a seed."""

  def __init__(self, examples: np.ndarray, hard: np.ndarray, seed: int, data):
    """Orders `examples`, of which those are hard whose `hard` is true."""
    self._kinds = examples[~hard], examples[hard]
    self._size = len(examples)
    self._seed = seed
    self._shares = [share / 100 for share in data.curriculum_shares]
    self._epochs = data.curriculum_epochs
    self._made = -1, None

  def __call__(self, position: int, _) -> int:
    epoch, at = divmod(position, self._size)
    made, order = self._made
    if made != epoch:
      order = self._order(epoch)
      self._made = epoch, order
    return int(order[at])

  def _order(self, epoch):
    rng = np.random.default_rng((self._seed, epoch))
    easy, hard = (rng.permutation(kind) for kind in self._kinds)
    stage = epoch // self._epochs
    if stage >= len(self._shares):
      return rng.permutation(np.concatenate([easy, hard]))
    share = self._shares[stage]
    # The n-th of a kind that is a share s of all is due at n / s.
    due = [
      (np.arange(len(easy)) + 0.5) / share,
      (np.arange(len(hard)) + 0.5) / (1 - share),
    ]
    order = np.argsort(np.concatenate(due), kind='stable')
    return np.concatenate([easy, hard])[order]


@functools.lru_cache(maxsize=4)
def hard(corpus, data, seed: int) -> np.ndarray:
  """Returns for each training example whether it is of the harder half.

  Makes all of them once, but for 'column'. The seed decides among equals.

  Raises:
    InputError: the source has no numbers.
  """
  examples = corpus.examples(data, 'train', seed)
  numbers = range(len(examples))
  if data.curriculum == 'column':
    column = corpus.documents['train'].difficulties
    if column is None:
      raise errors.InputError(
        f'data.difficulty={data.difficulty!r}: data.source={data.source!r} has '
        "no columns: use 'jsonl' or 'tfds:NAME'"
      )
    found = column[[examples.document(n) for n in numbers]]
  else:
    measure = len
    if data.curriculum == 'rarity':
      measure = shapes.unigram(corpus, data, seed).rarity
    found = np.array([measure(examples.make(n, 0)) for n in numbers])
  shuffled = np.random.default_rng(seed).permutation(len(found))
  rising = shuffled[np.argsort(found[shuffled], kind='stable')]
  hard = np.zeros(len(found), bool)
  hard[rising[len(found) // 2 :]] = True
  return hard
