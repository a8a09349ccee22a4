"""Compiled programs: XLA's figures of them, and functions that run them."""

import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks.harness import measure
from benchmarks.harness import rehearsal
from rnn_jax.profiling import hlo
from rnn_jax.profiling import kernel_times
from rnn_jax.profiling import kernels
from rnn_jax.profiling import pallas_costs
from rnn_jax.system import devices
from rnn_jax.system import target


def compile_ahead(jitted: Any, *arguments: Any) -> tuple[Any, measure.Values]:
  """Returns (the program for such arguments, XLA's figures of it).

  XLA counts the body of a loop once, however often it runs: its flops and
  bytes accessed are a floor.

  Raises:
    Compiled: the program is for another machine (target.using): its figures.
  """
  if target.used():
    arguments = jax.tree.map(_elsewhere, arguments)
  return compile_traced(lambda: jitted.trace(*arguments))


def _elsewhere(x):
  """The shape of an array that would be on the target's device."""
  place = jax.sharding.SingleDeviceSharding(target.device())
  return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)


def compile_traced(
  trace: Callable[[], jax.stages.Traced],
) -> tuple[Any, measure.Values]:
  """The same of what `trace` returns."""
  begin = time.perf_counter()
  if target.used():
    raise rehearsal.Compiled(_elsewhere_compiled(trace(), begin))
  lowered = trace().lower()
  compiling = time.perf_counter()
  program = lowered.compile()
  values = {
    'trace_seconds': compiling - begin,
    'compile_seconds': time.perf_counter() - compiling,
  }
  cost = program.cost_analysis() or {}
  cost = cost[0] if isinstance(cost, list) else cost
  return program, {
    **values,
    **_memory(program),
    'xla_flops': cost.get('flops'),
    'xla_bytes_accessed': cost.get('bytes accessed'),
  }


def _elsewhere_compiled(traced, begin):
  """What the program and its largest kernels take of the target."""
  with tempfile.TemporaryDirectory() as folder:
    with kernels.writing(folder) as options:
      program = target.compiled(traced, options)
    seconds = time.perf_counter() - begin
    made = kernels.read(folder)
  most = {
    key: max((getattr(one, key) for one in made), default=0)
    for key in ('registers', 'spilled', 'shared')
  }
  times = kernel_times.of(
    hlo.Program(program.as_text()),
    devices.find(target.name()),
    pallas_costs.of(traced.jaxpr),
  )
  same = {
    'compile_seconds': seconds,
    'kernels': len(made),
    'kinds': kernel_times.by(times, 'kind'),
  }
  return same | most | _memory(program)


def _memory(program):
  memory = program.memory_analysis()
  return {
    f'{kind}_bytes': getattr(memory, f'{kind}_size_in_bytes', None)
    for kind in ('temp', 'argument', 'output')
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
