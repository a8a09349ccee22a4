"""Digits as texts: each pixel is a letter, in the order of reading."""

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.sources import sequential_digits


def test_letters_are_the_pixels():
  from sklearn import datasets  # takes long to import

  classes = tuple('0123456789')
  data = config_lib.section(
    'data', source='sequential_digits', classes=classes, splits=(80, 10, 10)
  )
  splits = sequential_digits.load(data)
  digits = datasets.load_digits()
  test = splits['test']
  assert sum(map(len, splits.values())) == 1797
  for n in range(5):
    pixels = np.frombuffer(test.read(n), np.uint8) - ord('a')
    number = int(test.name(n))
    assert np.array_equal(pixels.reshape(8, 8), digits.images[number])
    assert test.labels[n] == digits.target[number]
