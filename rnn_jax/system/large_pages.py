"""Arrays in memory of large pages, where the system has them (Linux).

A core keeps the addresses of a few thousand pages. Weights that are read once
per step need a new one for each page: of 2 MiB, not 4 KiB, if it is large.
"""

import contextlib
import mmap
from collections.abc import Sequence

import numpy as np

ALIGNED = 64  # bytes: a cache line, and what XLA reads in place


def advise(memory: mmap.mmap) -> None:
  """Asks for large pages, from the first use of the memory on."""
  if hasattr(mmap, 'MADV_HUGEPAGE'):
    with contextlib.suppress(OSError):  # a kernel without them
      memory.madvise(mmap.MADV_HUGEPAGE)


def copy(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
  """Returns read-only copies, one after the other in memory of their own.

  The memory is freed with the last of them.
  """
  sizes = [-(-x.nbytes // ALIGNED) * ALIGNED for x in arrays]
  memory = mmap.mmap(-1, max(1, sum(sizes)))
  advise(memory)
  copies, begin = [], 0
  for x, size in zip(arrays, sizes, strict=True):
    own = np.frombuffer(memory, x.dtype, x.size, begin).reshape(x.shape)
    np.copyto(own, x)
    own.flags.writeable = False  # JAX then reads it in place
    copies.append(own)
    begin += size
  return copies
