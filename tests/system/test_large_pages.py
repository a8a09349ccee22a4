"""Arrays in large pages: what was copied, aligned, in memory of their own."""

import mmap
import re

import jax
import ml_dtypes
import numpy as np
import pytest

from rnn_jax.system import host
from rnn_jax.system import large_pages

SIZE = 8 << 20  # bytes; some whole large pages


def arrays():
  rng = np.random.default_rng(0)
  return [
    rng.integers(-9, 9, (3, 5)).astype(np.int8),
    rng.normal(size=(7, 4)).astype(np.float32),
    rng.normal(size=(2, 3, 33)).astype(ml_dtypes.bfloat16),
    np.zeros((0, 4), np.float32),
    np.array(2.5, np.float32),
  ]


def test_copies_have_the_same_numbers_and_are_whole_lines_apart():
  given = arrays()
  copies = large_pages.copy(given)
  for x, own in zip(given, copies, strict=True):
    np.testing.assert_array_equal(own, x)
    assert own.dtype == x.dtype
    assert not np.shares_memory(own, x)
    assert not own.size or own.ctypes.data % large_pages.ALIGNED == 0
  assert large_pages.copy([]) == []


def test_jax_reads_a_copy_in_place():
  (own,) = large_pages.copy([np.zeros((16, 16), np.float32)])
  placed = jax.device_put(own)
  assert placed.unsafe_buffer_pointer() == own.ctypes.data


@pytest.mark.skipif(
  not hasattr(mmap, 'MADV_HUGEPAGE'), reason='a system without large pages'
)
def test_the_memory_asks_for_large_pages():
  (own,) = large_pages.copy([np.zeros(SIZE, np.int8)])
  maps = (host.PROCESS / 'smaps').read_text()
  for part in re.split(r'\n(?=[0-9a-f]+-[0-9a-f]+ )', maps):
    begin, end = (int(x, 16) for x in part.split()[0].split('-'))
    if begin <= own.ctypes.data < end:
      assert re.search(r'VmFlags:.* hg\b', part)
      return
  raise AssertionError('not mapped')
