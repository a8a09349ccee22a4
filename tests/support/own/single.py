"""A layout: one window a row, in the order of the windows."""

import dataclasses

import numpy as np

from rnn_jax import config
from rnn_jax.data.batching import layout as layout_lib


@dataclasses.dataclass(frozen=True)
class Config(config.Data):
  """Options of the layout."""

  reversed_rows: bool = False  # the last window first


lengths = layout_lib.longest


def plan(sizes, shapes, data, seed=None, levels=None):
  """Returns the plan."""
  del seed, levels
  rows, _ = shapes[0]
  step = -1 if data.reversed_rows else 1
  cuts = np.split(np.arange(len(sizes)), range(rows, len(sizes), rows))
  batches = [(0, some[::step]) for some in cuts if len(some)]
  return layout_lib.one_per_row(batches, sizes)
