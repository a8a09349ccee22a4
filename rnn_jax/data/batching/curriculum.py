"""The order of examples from easy to hard.

The half of the examples with the lower difficulty is easy, the other half hard.
Stage i lasts `curriculum_epochs` epochs; in each, easy and hard examples, both
shuffled, alternate so that a fraction s_i of those drawn is easy, until one
half is used up; the rest of the other half follows. So an epoch still has every
example exactly once. After the last stage all are shuffled together.

Difficulty is the number of tokens ('length'), the mean surprise of the tokens
under a unigram model of a sample ('rarity'), both as in the first epoch, or the
number that the source has in column `data.difficulty` ('column').
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import shapes

KINDS = ('', 'length', 'rarity', 'column')  # of difficulty; '': none


class Order:
  """The map from a position in training to an example, fixed by the seed."""

  def __init__(
    self,
    examples: np.ndarray,
    hard: np.ndarray,
    seed: int,
    data: config_lib.Data,
  ) -> None:
    """Initializes the order.

    Args:
      examples: the numbers of the examples.
      hard: whether each one is hard.
      seed: of the shuffles.
      data: section `data` of the config.
    """
    self._easy, self._hard = examples[~hard], examples[hard]
    self._size = len(examples)
    self._seed = seed
    self._easy_fractions = [share / 100 for share in data.curriculum_shares]
    self._epochs = data.curriculum_epochs
    self._cached_epoch = -1
    self._cached_order = examples

  def __call__(self, position: int, _: Any) -> int:
    epoch, index = divmod(position, self._size)
    if self._cached_epoch != epoch:
      self._cached_epoch, self._cached_order = epoch, self._order(epoch)
    return int(self._cached_order[index])

  def _order(self, epoch):
    rng = np.random.default_rng((self._seed, epoch))
    easy, hard = rng.permutation(self._easy), rng.permutation(self._hard)
    stage = epoch // self._epochs
    if stage >= len(self._easy_fractions):
      return rng.permutation(np.concatenate([easy, hard]))
    fraction = self._easy_fractions[stage]
    # The n-th of those that are a fraction f of all is due at n / f.
    due = [
      (np.arange(len(easy)) + 0.5) / fraction,
      (np.arange(len(hard)) + 0.5) / (1 - fraction),
    ]
    order = np.argsort(np.concatenate(due), kind='stable')
    return np.concatenate([easy, hard])[order]


@functools.lru_cache(maxsize=4)
def hard(corpus: Any, data: config_lib.Data, seed: int) -> np.ndarray:
  """Returns for each training example whether it is in the harder half.

  Makes every example once, except for 'column'. The seed breaks ties.

  Args:
    corpus: a pipeline.Corpus.
    data: section `data` of the config.
    seed: of the order.

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
    difficulty = column[[examples.document(n) for n in numbers]]
  else:
    measure: Callable[[np.ndarray], float] = len
    if data.curriculum == 'rarity':
      measure = shapes.unigram(corpus, data, seed).rarity
    difficulty = np.array([measure(examples.make(n, 0)) for n in numbers])
  shuffled = np.random.default_rng(seed).permutation(len(difficulty))
  ascending = shuffled[np.argsort(difficulty[shuffled], kind='stable')]
  is_hard = np.zeros(len(difficulty), bool)
  is_hard[ascending[len(difficulty) // 2 :]] = True
  return is_hard
