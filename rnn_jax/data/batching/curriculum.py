"""The order of examples from easy to hard.

The half of the examples with the lower difficulty is easy, the other half hard.
In stage i, easy and hard examples alternate so that a fraction s_i of those
drawn is easy, throughout. A stage lasts `curriculum_epochs` epochs, the last
one to the end of training; an epoch has as many draws as there are examples.
Each half is shuffled, drawn to its end, and shuffled again: its examples are
drawn equally often, give or take one. With s_i = 1/2 an epoch has each example
once.

`data.curriculum` is the difficulty: 'length', the number of tokens; 'rarity',
their mean surprise under a unigram model of a sample; 'combined',

    length / L + perplexity / P + complexity / C

where L, P and C are the standard deviations over all examples, perplexity is
the exponential of rarity, and complexity that of difficulty.py;
'column', the number that the source has in `data.difficulty`. All but the last
are those of the first epoch.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import difficulty as difficulty_lib
from rnn_jax.data.batching import shapes
from rnn_jax.data.batching import shuffle

KINDS = ('', 'length', 'rarity', 'combined', 'column')  # '': no curriculum


class Order:
  """The map from places in training to examples, fixed by the seed."""

  def __init__(
    self, hard: np.ndarray, seed: int, data: config_lib.Data
  ) -> None:
    """Initializes the order.

    Args:
      hard: whether each example is hard.
      seed: of the shuffles.
      data: section `data` of the config.
    """
    self._halves = np.flatnonzero(~hard), np.flatnonzero(hard)
    self._seed = seed
    self._percentages = data.curriculum_shares
    self._stage_size = len(hard) * data.curriculum_epochs

  def __call__(self, places: np.ndarray) -> np.ndarray:
    """Returns the examples at places."""
    for half in (0, 1):
      if not len(self._halves[1 - half]):
        return self._drawn(half, places)
    before = self._easy_draws(places)
    is_easy = self._easy_draws(places + 1) > before
    drawn = np.empty_like(places)
    drawn[is_easy] = self._drawn(0, before[is_easy])
    drawn[~is_easy] = self._drawn(1, (places - before)[~is_easy])
    return drawn

  def _drawn(self, half, numbers):
    """Returns examples of a half, which is shuffled for each pass over it."""
    examples = self._halves[half]
    at_pass, index = np.divmod(numbers, len(examples))
    key = shuffle.key(self._seed, half, at_pass)
    return examples[shuffle.permuted(index, len(examples), key)]

  def _easy_draws(self, counts):
    """Returns how many of the first `counts` draws are easy."""
    hundredths, last = 50, len(self._percentages) - 1  # 50: rounds
    for stage, percent in enumerate(self._percentages):
      draws = counts if stage == last else np.minimum(counts, self._stage_size)
      hundredths = hundredths + percent * draws
      counts = counts - draws
    return hundredths // 100


@functools.lru_cache(maxsize=4)
def hard(corpus: Any, data: config_lib.Data, seed: int) -> np.ndarray:
  """Returns for each training example whether it is in the harder half.

  Reads every example once, except for 'column' and 'length'. The seed breaks
  ties.

  Args:
    corpus: a corpus.Corpus.
    data: section `data` of the config.
    seed: of the order.

  Raises:
    InputError: the source has no numbers.
  """
  examples = corpus.examples(data, 'train', seed)
  windows = corpus.windows(data, 'train', seed)
  example, start, stop = windows.at(np.arange(len(windows)))
  if data.curriculum == 'column':
    column = corpus.documents['train'].difficulties
    if column is None:
      raise errors.InputError(
        f'data.difficulty={data.difficulty!r}: data.source={data.source!r} has '
        "no columns: use 'jsonl' or 'tfds:NAME'"
      )
    difficulty = column[example]
  elif data.curriculum == 'length':
    difficulty = stop - start
  else:
    measure = _measure(corpus, data, seed)
    places = map(np.ndarray.tolist, (example, start, stop))
    each = np.array([measure(ids) for ids in map(examples.read, *places)])
    difficulty = combined(each) if data.curriculum == 'combined' else each
  shuffled = np.random.default_rng(seed).permutation(len(difficulty))
  ascending = shuffled[np.argsort(difficulty[shuffled], kind='stable')]
  is_hard = np.zeros(len(difficulty), bool)
  is_hard[ascending[len(difficulty) // 2 :]] = True
  return is_hard


def combined(features_NxF: np.ndarray) -> np.ndarray:
  """Returns the difficulty of examples by their features, see above."""
  numbers_NxF = features_NxF.copy()
  numbers_NxF[:, difficulty_lib.RARITY] = np.exp(
    features_NxF[:, difficulty_lib.RARITY]
  )
  return np.sum(
    numbers_NxF / difficulty_lib.deviations(numbers_NxF)[None], axis=1
  )


def _measure(corpus, data, seed) -> Callable[[np.ndarray], Any]:
  unigram = shapes.unigram(corpus, data, seed)
  if data.curriculum == 'rarity':
    return unigram.rarity
  return unigram.measure
