"""The word problem of a group: the running product of its elements.

    0110=0100            s_t = x_t s_{t-1}, s_0 the identity

The inputs are generators of the group, or any of its elements, all equally
likely; label t is the product of the first t, which a model tracks in its
state. Element n is character U+0100 + n (above: n), 0 the identity. The test
split has longer texts, of `data.word_problem.test_length`.

For `parity` a linear recurrence needs a factor of -1, and for `s5` at any
length transitions that aren't diagonal.
Sources: Liu et al., "Transformers Learn Shortcuts to Automata", 2023, for
generators; Merrill, Petty and Sabharwal, "The Illusion of State in State-Space
Models", 2024, for elements.
"""

import dataclasses
import functools
import itertools

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

# Generators of each group, permutations; element 0 is the identity.
GROUPS = {
  'parity': ((0, 1), (1, 0)),
  's3': ((1, 0, 2), (1, 2, 0)),
  'a5': ((1, 2, 0, 3, 4), (1, 2, 3, 4, 0)),
  's5': ((1, 0, 2, 3, 4), (1, 2, 3, 4, 0)),
}
FIRST = 0x100  # of the characters that name elements


@dataclasses.dataclass(frozen=True)
class Options(synthetic.Generated):
  """The content of a document, and the number of documents."""

  group: str = config_lib.option('s5', choices=tuple(GROUPS))
  # What words are written in.
  alphabet: str = config_lib.option(
    'generators', choices=('generators', 'elements')
  )
  length: int = config_lib.option(64, minimum=1)  # letters of a text
  test_length: int = config_lib.option(
    256, minimum=1
  )  # of one of the test split


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the source, of section `data` of the config."""

  word_problem: Options = Options()


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: too few examples to split.
  """
  options = data.word_problem
  longer = dataclasses.replace(options, length=options.test_length)
  splits = documents.split(
    documents.whole(synthetic.Texts(make, options)), data.splits, 'document'
  )
  tests = documents.whole(synthetic.Texts(make, longer))
  return splits | {'test': tests.select(splits['test'].units)}


def make(rng: np.random.Generator, options: Options) -> str:
  """Returns one document."""
  product = products(options.group)
  alphabet = (
    np.arange(len(product))
    if options.alphabet == 'elements'
    else np.array(generators(options.group))
  )
  drawn = rng.choice(alphabet, options.length)
  states = itertools.accumulate(drawn, lambda s, x: product[x, s], initial=0)
  return _spell(drawn) + synthetic.MARK + _spell([*states][1:])


@functools.cache
def elements(group: str) -> tuple[tuple[int, ...], ...]:
  """Returns the permutations of a group, the identity first."""
  size = len(GROUPS[group][0])
  known = {tuple(range(size)): None}  # in order
  new = [*known]
  while new:
    new = [
      one
      for x, s in itertools.product(GROUPS[group], new)
      if (one := tuple(x[i] for i in s)) not in known
    ]
    new = [*dict.fromkeys(new)]
    known |= dict.fromkeys(new)
  return tuple(known)


@functools.cache
def products(group: str) -> np.ndarray:
  """Returns the numbers of x s for elements x and s, a table."""
  number = {one: n for n, one in enumerate(elements(group))}
  return np.array(
    [[number[tuple(x[i] for i in s)] for s in number] for x in number]
  )


def generators(group: str) -> list[int]:
  """Returns the numbers of the generators."""
  return [elements(group).index(one) for one in GROUPS[group]]


def _spell(numbers):
  return ''.join(chr(FIRST + n) for n in numbers)
