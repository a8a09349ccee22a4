"""Rows of options for the tests of sampling and decoding."""

import numpy as np

from rnn_jax.inference import sampling


def make(settings, index_B, seed=0, **columns):
  """A table of rows with the same settings, all active.

  `columns` are other options by name, without the suffix.
  """
  table = sampling.make_table(len(index_B))
  line = sampling.line(settings)
  line = line._replace(seed_B=seed, index_B=index_B, limit_B=10**6)
  sampling.put(table, slice(None), line)
  for name, values in columns.items():
    getattr(table, f'{name}_B')[:] = values
  return table


def packed(settings, index_B, seed=0, **columns):
  """The same, as a program reads it."""
  return sampling.pack(make(settings, np.asarray(index_B), seed, **columns))
