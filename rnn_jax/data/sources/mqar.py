"""Multi-query associative recall: pairs, then their keys among other tokens.

    k1 v1 k2 v2 ... x k2 x x k1 x = . . . . ... . v2 . . v1 .

A text of `data.mqar.length` symbols begins with `pairs` pairs of a key and a
value. Each key comes once more, g places of two symbols after the pairs, where
g is drawn from a power law, p(g) ~ g^(power - 1), and its label is the value.
The symbols between them are random, or with filler 'one' all the first of the
vocabulary, which then is no key. Half of the vocabulary are keys, half are
values. Source: Arora et al., "Zoology: Measuring and Improving Recall in
Efficient Language Models", 2023.
"""

import dataclasses

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

FIRST = 0x4E00  # of the symbols, all of three bytes


@dataclasses.dataclass(frozen=True)
class Options(synthetic.Generated):
  """The content of a document, and the number of documents."""

  length: int = config_lib.option(64, minimum=4)  # symbols of a text
  pairs: int = config_lib.option(4, minimum=1)
  vocabulary: int = config_lib.option(8192, minimum=4, maximum=16384)
  power: float = config_lib.option(0.01, above=0)
  filler: str = config_lib.option('random', choices=('random', 'one'))

  @property
  def first_key(self) -> int:
    """The number of the first symbol that may be a key."""
    return int(self.filler == 'one')


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the source, of section `data` of the config."""

  mqar: Options = Options()

  def check(self, config: config_lib.Config) -> None:
    """Checks that the pairs and their keys have room.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    super().check(config)
    options = self.mqar
    most = min(options.length // 4, options.vocabulary // 2 - options.first_key)
    if options.pairs > most:
      errors.refuse(
        'data.mqar.pairs',
        options.pairs,
        f'a pair takes four of data.mqar.length={options.length} symbols and '
        f'a key of data.mqar.vocabulary={options.vocabulary}: give {most} or '
        'less',
      )


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: too few examples to split.
  """
  texts = documents.whole(synthetic.Texts(make, data.mqar))
  return documents.split(texts, data.splits, 'document')


def make(rng: np.random.Generator, options: Options) -> str:
  """Returns one document."""
  half, pairs = options.vocabulary // 2, options.pairs
  first = options.first_key
  keys = first + rng.choice(half - first, pairs, replace=False)
  values = half + rng.choice(half, pairs, replace=False)
  places = (options.length - 2 * pairs) // 2
  weight = np.arange(1.0, places + 1) ** (options.power - 1)
  gaps = rng.choice(places, pairs, replace=False, p=weight / weight.sum())
  asked = 2 * pairs + 2 * gaps
  symbols = np.zeros(options.length, int)
  if options.filler == 'random':
    symbols = rng.integers(options.vocabulary, size=options.length)
  symbols[: 2 * pairs] = np.stack([keys, values], 1).ravel()
  symbols[asked] = keys
  labels = np.full(options.length, synthetic.FILLER)
  labels[asked] = [chr(FIRST + n) for n in values]
  text = ''.join(chr(FIRST + n) for n in symbols)
  return text + synthetic.MARK + ''.join(labels)
