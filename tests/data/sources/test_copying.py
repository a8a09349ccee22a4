"""Copying: the copy is the original, after the gap."""

import re

import numpy as np

from rnn_jax.data.sources import copying
from rnn_jax.data.text import synthetic


def test_the_letters_are_at_both_ends():
  options = synthetic.Options(pairs=6, distance=9, symbols=3)
  texts = [copying.make(np.random.default_rng(n), options) for n in range(20)]
  for text in texts:
    first, second = re.fullmatch(r'([abc]{6})\.{9}=([abc]{6})', text).groups()
    assert first == second
  assert len({*texts}) > 15


def test_no_gap():
  options = synthetic.Options(pairs=2, distance=0)
  assert re.fullmatch(
    r'(..)=\1', copying.make(np.random.default_rng(0), options)
  )
