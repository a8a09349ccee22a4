"""The memory of this machine and this process, from the Linux kernel."""

import contextlib
import ctypes
import math
import os
import pathlib
import re
import resource
import sys
from collections.abc import Iterable
from typing import Any

from rnn_jax import errors

ROOT = pathlib.Path('/')
PROCESS = pathlib.Path('/proc/self')
PINNED = 'pinned_host'  # JAX's name of host memory that devices can access
UNLIMITED = 1 << 60  # version 1 of cgroups writes a larger number for no limit


class Memory:
  """Measures resident memory since its construction."""

  def __init__(self) -> None:
    # Reset the peak; if that fails, it includes earlier peaks.
    with contextlib.suppress(OSError):
      (PROCESS / 'clear_refs').write_text('5')
    self._before = resident()

  def values(self) -> dict[str, int]:
    """Returns resident bytes at the start, their peak and the difference."""
    peak = max(status('VmHWM'), resident())
    return {
      'resident_bytes': self._before,
      'resident_peak_bytes': peak,
      'resident_delta_bytes': peak - self._before,
    }


def resident() -> int:
  """Returns the resident bytes of this process.

  Raises:
    InputError: the system doesn't report them.
  """
  pages = _of_process('statm').split()[1]
  return int(pages) * resource.getpagesize()


def status(key: str) -> int:
  """Returns the bytes of a key of /proc/self/status.

  Kernels without the key: the peak resident bytes.

  Raises:
    InputError: as `resident`.
  """
  for line in _of_process('status').splitlines():
    if line.startswith(key + ':'):
      return int(line.split()[1]) * 1024
  return process_peak()


def _of_process(name):
  try:
    return PROCESS.joinpath(name).read_text()
  except OSError:
    raise errors.InputError(
      f"a process's memory is measured by {PROCESS}, which this system lacks: "
      'measure it on Linux'
    ) from None


def free_descriptors() -> float:
  """Returns how many files this process may still open; may be infinite."""
  limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
  if limit == resource.RLIM_INFINITY:
    return math.inf
  with contextlib.suppress(OSError):
    return limit - len(os.listdir('/dev/fd'))
  return limit


def check_descriptors(needed: int, what: str, remedy: str = '') -> None:
  """Checks that the limit of open files leaves enough.

  Raises:
    InputError: it doesn't; the message begins with `what` and ends with
      `remedy`.
  """
  if (free := free_descriptors()) < needed:
    raise errors.InputError(
      f'{what} needs {needed} open files, and the limit leaves {free}: raise '
      f'it, ulimit -n{remedy}'
    )


def check_pinned(devices: Iterable[Any], setting: str) -> None:
  """Checks that devices can access memory of their host.

  Args:
    devices: as in jax.devices().
    setting: what needs it, as 'key=value', for the message.

  Raises:
    InputError: a device can't, or is only compiled for.
  """
  from rnn_jax.system import target  # late: it loads jax, which others needn't

  if target.used():
    raise errors.InputError(
      f"{setting}: the compiler of a GPU that isn't attached counts the host's "
      "memory as the GPU's: give False"
    )
  for device in devices:
    kinds = sorted(memory.kind for memory in device.addressable_memories())
    if PINNED not in kinds:
      raise errors.InputError(
        f'{setting}: {device.device_kind} has {kinds} memory, not {PINNED!r}: '
        'give False'
      )


def process_peak() -> int:
  """Returns the peak resident bytes of this process."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak if sys.platform == 'darwin' else peak * 1024


def release_freed_memory() -> None:
  """Returns freed memory to the kernel, if the C library is glibc.

  Else memory that a compilation freed would hide what the next program needs.
  """
  with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL('libc.so.6').malloc_trim(0)


def limit(more: int) -> None:
  """Lets this process allocate at most `more` bytes from now on.

  The limit is on private writable memory (RLIMIT_DATA). The address space
  (RLIMIT_AS) would also count what allocators reserve and never use.
  """
  _, hard = resource.getrlimit(resource.RLIMIT_DATA)
  resource.setrlimit(resource.RLIMIT_DATA, (status('VmData') + more, hard))


def available_bytes(root: pathlib.Path = ROOT) -> int:
  """Returns the memory that new work may use.

  It is the minimum of the kernel's available memory and what the limits of this
  process's control groups (cgroups, version 1 or 2) leave.

  Raises:
    InputError: the system doesn't report it.
  """
  text = _text(root / 'proc/meminfo')
  available = re.search(r'^MemAvailable:\s*(\d+) kB', text, re.MULTILINE)
  if not available:
    raise errors.InputError(
      "--memory_gib is missing: this system doesn't report its available "
      'memory: give a number'
    )
  return min([int(available[1]) * 1024, *_left_of_groups(root)])


def _left_of_groups(root):
  """Returns what each limit of this process's groups and parents leaves."""
  left = []
  for folder, names in _groups(root):
    limit_bytes = _number(folder / names[0])
    used = _number(folder / names[1])
    if limit_bytes is None or used is None or limit_bytes >= UNLIMITED:
      continue
    # The kernel reclaims pages of files when memory is short.
    stat = _text(folder / 'memory.stat')
    cached = re.search(rf'^{names[2]} (\d+)', stat, re.MULTILINE)
    left.append(max(limit_bytes - used + (int(cached[1]) if cached else 0), 0))
  return left


def _groups(root):
  """Yields (folder, names of its files) of the groups up to the root."""
  version_1 = (
    'memory.limit_in_bytes',
    'memory.usage_in_bytes',
    'total_inactive_file',
  )
  version_2 = ('memory.max', 'memory.current', 'inactive_file')
  for line in _text(root / 'proc/self/cgroup').splitlines():
    number, _, rest = line.partition(':')
    controllers, _, path = rest.partition(':')
    if number == '0' or controllers.split(',').count('memory'):
      top = root / 'sys/fs/cgroup' / ('' if number == '0' else 'memory')
      group = top / path.lstrip('/')
      names = version_2 if number == '0' else version_1
      for folder in (group, *group.parents):
        yield folder, names
        if folder == top:
          break


def _text(path):
  try:
    return path.read_text()
  except OSError:
    return ''


def _number(path):
  text = _text(path).strip()
  return int(text) if text.isdecimal() else None
