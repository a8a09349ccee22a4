"""The store of states."""

import numpy as np

from rnn_jax.serving import prefixes


def entry(size=10):
  return prefixes.Entry((np.zeros(size, np.int8),), np.zeros((1, 0)))


def test_the_longest_beginning_is_returned():
  store, first, second = prefixes.Store(100), entry(), entry()
  store.put(b'a', first)
  store.put(b'c', second)
  assert store.longest([b'a', b'b', b'c', b'd']) == (3, second)
  assert store.longest([b'a', b'b']) == (1, first)
  assert store.longest([b'x']) == (0, None)
  assert store.longest([b'a', b'']) == (1, first)
  counts = store.counts
  assert (counts.hits, counts.misses) == (3, 1)


def test_the_entry_used_longest_ago_goes_first():
  store = prefixes.Store(30)
  for key in (b'a', b'b', b'c'):
    store.put(key, entry())
  store.longest([b'a'])
  store.put(b'd', entry())
  left = [key for key in (b'a', b'b', b'c', b'd') if store.longest([key])[0]]
  assert left == [b'a', b'c', b'd']
  counts = store.counts
  assert (counts.entries, counts.nbytes, counts.evictions) == (3, 30, 1)


def test_what_does_not_fit_is_not_stored():
  store = prefixes.Store(30)
  store.put(b'a', entry())
  store.put(b'b', entry(31))
  store.put(b'a', entry())  # again: it isn't counted twice
  assert store.counts.entries == 1
  assert store.counts.nbytes == 10
  store.clear()
  assert (store.counts.entries, store.counts.nbytes) == (0, 0)
  store.put(b'a', entry())
  assert store.counts.nbytes == 10
