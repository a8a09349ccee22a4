"""Percentages of splits, copies, and overlaps."""

import collections

import pytest

from rnn_jax import errors
from rnn_jax.data.preparation import splits
from rnn_jax.data.tables import values as values_lib


@pytest.mark.parametrize('text', ('85,10', 'a,b,c', '90,20,-10', '80,10,5'))
def test_bad_percentages_are_refused(text):
  with pytest.raises(errors.InputError, match=f"--splits='{text}': give three"):
    splits.percentages(text)
  assert splits.percentages('85, 10,5') == (85, 10, 5)


def test_examples_are_split_by_percentages_and_copies_stay_together():
  contents = [b'%d' % (n // 2) for n in range(200)]
  assigned = splits.assign(contents, (50, 30, 20), seed=0)
  counts = collections.Counter(assigned)
  assert counts == {'train': 100, 'validation': 60, 'test': 40}
  assert assigned[::2] == assigned[1::2]
  assert assigned == splits.assign(contents, (50, 30, 20), seed=0)
  assert assigned != splits.assign(contents, (50, 30, 20), seed=1)
  assert {*splits.assign(contents, (0, 100, 0), seed=0)} == {'validation'}


def test_a_split_of_less_than_one_example_is_refused():
  with pytest.raises(errors.InputError, match='cannot fill'):
    splits.assign([b'a', b'a'], (50, 50, 0), seed=0)
  with pytest.raises(errors.InputError, match='nothing is left for test'):
    splits.assign([b'a', b'b', b'c', b'd'], (74, 25, 1), seed=0)


def test_contents_are_compared_without_their_label():
  def hashed(**values):
    return splits.content_hash(values_lib.Row('f:1', values, ''), 'label')

  assert hashed(text='a', label='1') == hashed(label='2', text='a')
  assert hashed(text='a') != hashed(text='b')
  assert hashed(turns=['a', 'b']) != hashed(turns=['ab'])


def test_overlaps_are_counted_for_each_pair_with_one_place():
  overlaps = splits.overlaps(
    [b'x', b'y', b'x', b'x', b'y'],
    ['f:1', 'f:2', 'f:3', 'f:4', 'f:5'],
    ['train', 'train', 'train', 'test', 'test'],
  )
  assert overlaps == [
    splits.Overlap('train', 'train', 1, ('f:1', 'f:3')),
    splits.Overlap('train', 'test', 2, ('f:1', 'f:4')),
  ]
