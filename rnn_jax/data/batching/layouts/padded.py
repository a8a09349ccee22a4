"""Padding: a batch is as long as its longest row, rounded up.

Its rows are consecutive windows; all batches have the same number of them.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from rnn_jax.data.batching import layout as layout_lib

lengths = layout_lib.known


@dataclasses.dataclass(frozen=True)
class Config(layout_lib.Multiples):
  """Options of the layout, of section `data` of the config."""

  same_rows: ClassVar[bool] = True


def plan(block: layout_lib.Block) -> layout_lib.Laid:
  """Returns the plan of consecutive rows; see the package."""
  sizes, shapes = block.sizes, block.shapes
  rows, _ = shapes[0]
  cuts = np.arange(0, len(sizes), rows)
  longest = np.maximum.reduceat(sizes, cuts) if len(cuts) else cuts
  number = np.searchsorted([length for _, length in shapes], longest)
  items = np.split(np.arange(len(sizes)), cuts[1:])
  return layout_lib.one_per_row(zip(number, items, strict=False), sizes)
