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
the exponential of rarity, and complexity that of the vocabulary (features.py);
'column', the number that the source has in `data.difficulty`. All but the last
are those of the first epoch.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import features
from rnn_jax.data.batching import shapes

KINDS = ('', 'length', 'rarity', 'combined', 'column')  # '': no curriculum


class Half:
  """The easy or the hard examples, shuffled again for each pass over them."""

  def __init__(self, examples: np.ndarray, seed: tuple[int, int]) -> None:
    """Initializes the half.

    Args:
      examples: the numbers of its examples.
      seed: of the shuffles.
    """
    self._examples = examples
    self._seed = seed
    self._pass = -1
    self._shuffled = examples

  def __len__(self) -> int:
    return len(self._examples)

  def draw(self, number: int) -> int:
    """Returns the example of a draw, numbered from 0."""
    at_pass, index = divmod(number, len(self._examples))
    if self._pass != at_pass:
      rng = np.random.default_rng((*self._seed, at_pass))
      self._pass, self._shuffled = at_pass, rng.permutation(self._examples)
    return int(self._shuffled[index])


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
    self._easy = Half(examples[~hard], (seed, 0))
    self._hard = Half(examples[hard], (seed, 1))
    self._percentages = data.curriculum_shares
    self._stage_size = len(examples) * data.curriculum_epochs

  def __call__(self, position: int, _: Any) -> int:
    easy, hard = self._easy, self._hard
    if not len(easy) or not len(hard):
      return (easy if len(easy) else hard).draw(position)
    before = self._easy_draws(position)
    if self._easy_draws(position + 1) > before:
      return easy.draw(before)
    return hard.draw(position - before)

  def _easy_draws(self, count):
    """Returns how many of the first `count` draws are easy."""
    hundredths, last = 50, len(self._percentages) - 1  # 50: rounds
    for stage, percent in enumerate(self._percentages):
      draws = count if stage == last else min(count, self._stage_size)
      hundredths += percent * draws
      count -= draws
    return hundredths // 100


@functools.lru_cache(maxsize=4)
def hard(corpus: Any, data: config_lib.Data, seed: int) -> np.ndarray:
  """Returns for each training example whether it is in the harder half.

  Reads every example once, except for 'column' and 'length'. The seed breaks
  ties.

  Args:
    corpus: a pipeline.Corpus.
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
  numbers_NxF[:, features.RARITY] = np.exp(features_NxF[:, features.RARITY])
  return np.sum(numbers_NxF / features.deviations(numbers_NxF)[None], axis=1)


def _measure(corpus, data, seed) -> Callable[[np.ndarray], Any]:
  unigram = shapes.unigram(corpus, data, seed)
  if data.curriculum == 'rarity':
    return unigram.rarity
  return functools.partial(features.measure, unigram)
