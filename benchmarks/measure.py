"""Seconds, bytes and what XLA says of a compiled program."""

import contextlib
import os
import pathlib
import resource
import statistics
import time


def repeat(run, repeats, warmups=1):
  """Times `run()`, which must end when its work is done. Returns a dict."""
  for _ in range(warmups):
    run()
  return summarize([_seconds(run) for _ in range(repeats)])


def _seconds(run):
  begin = time.perf_counter()
  run()
  return time.perf_counter() - begin


def summarize(seconds):
  """Repeats, median, mean, standard deviation and minimum of seconds."""
  return {
    'repeats': len(seconds),
    'median': statistics.median(seconds),
    'mean': statistics.fmean(seconds),
    'deviation': statistics.stdev(seconds) if len(seconds) > 1 else 0.0,
    'min': min(seconds),
  }


def percentiles(seconds):
  """p50, p95 and p99 of seconds."""
  ordered = sorted(seconds)
  last = len(ordered) - 1
  return {f'p{n}': ordered[round(n / 100 * last)] for n in (50, 95, 99)}


class Memory:
  """Resident memory from its making on, where the kernel counts it."""

  def __init__(self):
    # Resets the peak; where it can't, the peak includes compilation.
    with contextlib.suppress(OSError):
      pathlib.Path('/proc/self/clear_refs').write_text('5')
    self._before = _status('VmRSS')

  def values(self):
    """Resident bytes before, their peak, and the difference."""
    peak = _status('VmHWM')
    return {
      'resident_bytes': self._before,
      'resident_peak_bytes': peak,
      'resident_delta_bytes': peak - self._before,
    }


def _status(key):
  for line in pathlib.Path('/proc/self/status').read_text().splitlines():
    if line.startswith(key + ':'):
      return int(line.split()[1]) * 1024
  return process_peak()


def process_peak():
  """The largest resident size that this process has had, in bytes."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compile_program(jitted, *arguments):
  """Compiles ahead of time. Returns (the program, what XLA says of it).

  XLA counts the body of a loop once, however often it runs: its flops and
  bytes accessed are a floor.
  """
  begin = time.perf_counter()
  lowered = jitted.lower(*arguments)
  traced = time.perf_counter()
  program = lowered.compile()
  memory, cost = program.memory_analysis(), program.cost_analysis() or {}
  cost = cost[0] if isinstance(cost, list) else cost
  return program, {
    'trace_seconds': traced - begin,
    'compile_seconds': time.perf_counter() - traced,
    'temp_bytes': getattr(memory, 'temp_size_in_bytes', None),
    'argument_bytes': getattr(memory, 'argument_size_in_bytes', None),
    'output_bytes': getattr(memory, 'output_size_in_bytes', None),
    'xla_flops': cost.get('flops'),
    'xla_bytes_accessed': cost.get('bytes accessed'),
  }


def device_peak(device):
  """{'device_peak_bytes': ...} where the device counts them, else {}."""
  stats = device.memory_stats() or {}
  peak = stats.get('peak_bytes_in_use')
  return {} if peak is None else {'device_peak_bytes': peak}


def cores():
  """How many cores this process may use."""
  return len(os.sched_getaffinity(0))
