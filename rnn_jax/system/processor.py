"""Features of this machine's processor, and its cores."""

import functools
import os
import pathlib
import platform

CPUINFO = pathlib.Path('/proc/cpuinfo')
_FIELDS = ('flags', 'features', 'cpu implementer', 'cpu part')
_WIDEST = (  # by the feature's name in /proc/cpuinfo, the widest first
  ('avx512f', 'AVX-512'),
  ('avx2', 'AVX2'),
  ('avx', 'AVX'),
  ('sse2', 'SSE2'),
  ('asimd', 'NEON'),
)


@functools.cache
def features() -> frozenset[str]:
  """Returns the names of the features; where Linux lists none, the machine."""
  try:
    lines = CPUINFO.read_text(encoding='utf-8', errors='replace').splitlines()
  except OSError:
    lines = []
  words = set()
  for line in lines:
    field, _, text = line.partition(':')
    if field.strip().lower() in _FIELDS:
      words.update(text.split())
  return frozenset(words or {platform.machine(), platform.processor()})


def vectors() -> str:
  """Returns the name of the widest vector instructions, as 'AVX2'."""
  have = features()
  names = (name for feature, name in _WIDEST if feature in have)
  return next(names, platform.machine())


def cores() -> int:
  """Returns how many CPUs this process may use; on macOS, all there are."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1
