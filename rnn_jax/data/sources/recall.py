"""Associative recall: pairs of a key and a value, a gap, then each key again.

    aKcBdA......?c=B?a=K?d=A

A document has `data.synthetic.pairs` different keys (lowercase letters), each
with a value (uppercase), `distance` dots, and a question for each key, in any
order.
Source: Arora et al., "Zoology: Measuring and Improving Recall in Efficient
Language Models", 2023 (multi-query associative recall).
"""

import numpy as np

from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

Config = synthetic.Config


def load(data: synthetic.Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: more pairs than symbols, or too few examples to split.
  """
  return synthetic.load(data, make, distinct=True)


def make(rng: np.random.Generator, options: synthetic.Options) -> str:
  """Returns one document."""
  chosen = rng.permutation(options.symbols)[: options.pairs]
  keys = [synthetic.LETTERS[n] for n in chosen]
  values = synthetic.draw(rng, options).upper()
  pairs = ''.join(k + v for k, v in zip(keys, values, strict=True))
  questions = (
    f'{synthetic.ASK}{keys[n]}{synthetic.MARK}{values[n]}'
    for n in rng.permutation(options.pairs)
  )
  return pairs + synthetic.FILLER * options.distance + ''.join(questions)
