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


def plan(block):
  """Returns the plan."""
  rows, _ = block.shapes[0]
  step = -1 if block.data.reversed_rows else 1
  items = np.arange(len(block.sizes))
  cuts = np.split(items, range(rows, len(items), rows))
  batches = [(0, some[::step]) for some in cuts if len(some)]
  return layout_lib.one_per_row(batches, block.sizes)
