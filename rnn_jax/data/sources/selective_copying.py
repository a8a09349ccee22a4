"""Selective copying: letters among dots, and the letters alone.

    .d..c.a..=dca

A document has `data.synthetic.pairs` letters among `distance` dots, at random
places, so that no fixed delay copies them. Source: Jing et al., "Gated
Orthogonal Recurrent Units: On Learning to Forget", 2019 (the denoise task).
"""

from rnn_jax import config
from rnn_jax.data import documents
from rnn_jax.data import synthetic


def load(data: config.Data) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: too few examples to split.
  """
  return synthetic.load(data, make)


def make(rng, options: config.Synthetic) -> str:
  """Returns one document."""
  letters = synthetic.draw(rng, options)
  places = rng.permutation(options.pairs + options.distance)[: options.pairs]
  text = [synthetic.FILLER] * (options.pairs + options.distance)
  for place, letter in zip(sorted(places), letters, strict=True):
    text[place] = letter
  return f'{"".join(text)}{synthetic.MARK}{letters}'
