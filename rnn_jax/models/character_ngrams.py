"""Embeddings of a token's character n-grams, which similar words share.

    e(token) = sum_i table[bucket(ngram_i)] / sqrt(number of them)

of the 3-, 4- and 5-grams of '<token>' in lower case, up to MOST of them
(Bojanowski et al., "Enriching Word Vectors with Subword Information", 2017). A
bucket is a hash. They depend on the token alone, so that tokens are still read
one at a time. The boundary has none.
"""

import functools
from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

LOGICAL_AXES = {'embedding': '_xD'}
LENGTHS = 3, 4, 5
MOST = 24  # n-grams of a token; the shortest are taken first


class CharacterNgrams(nn.Module):
  """See the module's docstring; `spelled` are the bytes of each token."""

  spelled: tuple[bytes, ...]
  buckets: int
  width: int
  scale: float

  @nn.compact
  def __call__(self, tokens_BxL: jax.Array) -> jax.Array:
    """Returns the embeddings of tokens, BxLxD, float32."""
    table = self.param(
      'embedding',
      nn.initializers.normal(self.scale),
      (self.buckets, self.width),
    )
    rows_BxLxM = jnp.asarray(rows(self.spelled, self.buckets))[tokens_BxL]
    each = jnp.asarray(table)[rows_BxLxM]  # a caller's may be NumPy's
    each = jnp.where(rows_BxLxM[..., None] < 0, 0.0, each)
    number_BxL = jnp.sum(rows_BxLxM >= 0, -1)
    return (
      jnp.sum(each, 2)
      * jax.lax.rsqrt(jnp.maximum(number_BxL, 1).astype(jnp.float32))[..., None]
    )


@functools.lru_cache(maxsize=8)
def rows(spelled: tuple[bytes, ...], buckets: int) -> np.ndarray:
  """Returns the table's rows of each token, VxM, int32; -1 for none."""
  made = np.full((len(spelled), MOST), -1, np.int32)
  for token, text in enumerate(spelled):
    own = [_hashed(x) % buckets for x in _ngrams(text)][:MOST]
    made[token, : len(own)] = own
  return made


def _ngrams(text: bytes) -> Iterator[bytes]:
  word = text.decode(errors='replace').strip().lower()
  if not word:
    return
  marked = f'<{word}>'
  for n in LENGTHS:
    for i in range(len(marked) - n + 1):
      yield marked[i : i + n].encode()


def _hashed(text):
  """Returns its FNV-1a hash, 32 bits: the same in each process."""
  value = 2166136261
  for byte in text:
    value = (value ^ byte) * 16777619 & 0xFFFFFFFF
  return value
