"""Selective copying: letters among dots, then only the letters.

    .d..c.a..=dca

A document has `data.synthetic.pairs` letters among `distance` dots, at random
places, so that no fixed delay copies them. Source: Jing et al., "Gated
Orthogonal Recurrent Units: On Learning to Forget", 2019 (the denoise task).
"""

import numpy as np

from rnn_jax.data.text import documents
from rnn_jax.data.text import synthetic

Config = synthetic.Config


def load(data: synthetic.Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: too few examples to split.
  """
  return synthetic.load(data, make)


def make(rng: np.random.Generator, options: synthetic.Options) -> str:
  """Returns one document."""
  letters = synthetic.draw(rng, options)
  length = options.pairs + options.distance
  positions = rng.permutation(length)[: options.pairs]
  text = [synthetic.FILLER] * length
  for position, letter in zip(sorted(positions), letters, strict=True):
    text[position] = letter
  return f'{"".join(text)}{synthetic.MARK}{letters}'
