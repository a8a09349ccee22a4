"""Word problems: labels are the products of permutations so far."""

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.sources import word_problem

ORDERS = {'parity': 2, 's3': 6, 'a5': 60, 's5': 120}  # n!, of A_n half


def numbers(text):
  return [ord(letter) - word_problem.FIRST for letter in text]


def composed(group, inputs):
  """The products as matrices: P_x P_s, one after another."""
  elements = word_problem.elements(group)
  matrices = [np.eye(len(one))[list(one)].T for one in elements]
  state = np.eye(len(elements[0]))
  for x in inputs:
    state = matrices[x] @ state
    [number] = [n for n, m in enumerate(matrices) if np.array_equal(m, state)]
    yield number


@pytest.mark.parametrize('group', ORDERS)
@pytest.mark.parametrize('alphabet', ('generators', 'elements'))
def test_labels_are_the_products_so_far(group, alphabet):
  options = word_problem.Options(group=group, alphabet=alphabet, length=40)
  used = set()
  for n in range(8):
    text = word_problem.make(np.random.default_rng(n), options)
    inputs, labels = map(numbers, text.split('='))
    assert len(inputs) == len(labels) == 40
    assert labels == [*composed(group, inputs)]
    used.update(inputs)
  order = ORDERS[group]
  assert len({*word_problem.elements(group)}) == order
  assert len(used) == 2 if alphabet == 'generators' else len(used) > order / 2


def test_parity_counts_ones():
  options = word_problem.Options(group='parity', length=30)
  text = word_problem.make(np.random.default_rng(0), options)
  inputs, labels = map(numbers, text.split('='))
  assert labels == [*(np.cumsum(inputs) % 2)]


def test_the_test_split_is_longer():
  options = {'length': 8, 'test_length': 20, 'examples': 40}
  data = config_lib.section(
    'data', source='word_problem', word_problem=options, splits=(50, 25, 25)
  )
  splits = word_problem.load(data)
  sizes = {
    name: {len(split.read(n).decode()) for n in range(len(split))}
    for name, split in splits.items()
  }
  assert sizes == {'train': {17}, 'validation': {17}, 'test': {41}}
  assert [len(splits[name]) for name in splits] == [20, 10, 10]
