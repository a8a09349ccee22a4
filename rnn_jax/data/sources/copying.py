"""Copying: letters, a gap, and the letters again.

    dcadb......=dcadb

A document has `data.synthetic.pairs` letters and `distance` dots between them
and their copy. Source: Arjovsky, Shah and Bengio, "Unitary Evolution Recurrent
Neural Networks", 2016.
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
  gap = synthetic.FILLER * options.distance
  return f'{letters}{gap}{synthetic.MARK}{letters}'
