"""The baseline: known extremes."""

import os

import numpy as np

from rnn_jax.data.text import compressors
from tests.support import corpora


def test_repetition_costs_little_and_both_see_all_documents():
  repeated = compressors.bits_per_byte(
    corpora.in_memory('a' * 9999, 'a' * 9999)
  )
  assert 0 < repeated['gzip'] < 0.1 and 0 < repeated['xz'] < 0.1


def test_random_bits_cost_what_they_are():
  # Two equally likely characters: a bit each.
  bits = np.unpackbits(np.frombuffer(os.urandom(10000), np.uint8))
  text = ''.join(map(str, bits))
  measured = compressors.bits_per_byte(
    corpora.in_memory(text[:100], text[100:])
  )
  assert 1 <= measured['gzip'] < 1.4 and 1 <= measured['xz'] < 1.4
