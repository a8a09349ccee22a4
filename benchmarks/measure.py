"""Seconds, bytes and what XLA says of a compiled program."""

import os
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
