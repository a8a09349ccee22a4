"""Selective copying: the letters in their order, wherever they were."""

import numpy as np

from rnn_jax.data.sources import selective_copying
from rnn_jax.data.text import synthetic


def test_the_answer_is_the_text_without_its_dots():
  options = synthetic.Options(pairs=4, distance=9)
  places = set()
  for n in range(50):
    text = selective_copying.make(np.random.default_rng(n), options)
    read, answer = text.split('=')
    assert len(read) == 13 and read.count('.') == 9
    assert read.replace('.', '') == answer
    places.update(at for at, letter in enumerate(read) if letter != '.')
  assert places == {*range(13)}
