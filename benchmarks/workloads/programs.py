"""Compiled programs: XLA's figures of them, and functions that run them."""

import time
from typing import Any

import jax

from benchmarks.harness import measure


def compile_ahead(jitted: Any, *arguments: Any) -> tuple[Any, measure.Values]:
  """Returns (the program for such arguments, XLA's figures of it).

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


def run(program: Any, *arguments: Any) -> measure.Run:
  """A function that runs a program to its end."""
  return lambda: jax.block_until_ready(program(*arguments))


def step(program: Any, state: Any, *rest: Any) -> measure.Run:
  """A function that takes a step: (state, *rest) -> (state, anything)."""

  def run():
    nonlocal state
    state, _ = jax.block_until_ready(program(state, *rest))

  return run


def device_peak() -> measure.Values:
  """{'device_peak_bytes': ...} where the device counts them, else {}."""
  peak = (jax.devices()[0].memory_stats() or {}).get('peak_bytes_in_use')
  return {} if peak is None else {'device_peak_bytes': peak}
