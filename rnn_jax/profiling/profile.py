"""Profiles a config's training step: memory, time, operations, buffers.

`run` and `compile_only`, which is for a target, return a dict that JSON can
write:

  workload   what was measured: rows, length, vocabulary, precision, device
  memory     bytes of each device: 'arrays', 'kept_for_backward', 'programs' by
             the compiler, 'device' by the device or the kernel
  cost       flops and bytes accessed by XLA, a floor: it counts loops once
  time       'compile_seconds'; seconds of the steps, without and with the trace
  trace      its file, 'busy_share', the slowest operations and modules
  sent       what a device sends (sent.py)
  kernels    of a target's program (kernels.py)
  predicted  how long they take there (kernel_times.py)
  buffers    the largest results of operations
  versions, commit
"""

import pathlib
import platform
import statistics
import tempfile
from typing import Any

import jax

from rnn_jax.parallel import axes
from rnn_jax.profiling import hlo
from rnn_jax.profiling import kernel_times
from rnn_jax.profiling import kernels as kernels_lib
from rnn_jax.profiling import parts as parts_lib
from rnn_jax.profiling import sent as sent_lib
from rnn_jax.profiling import trace as trace_lib
from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import activity
from rnn_jax.system import provenance

WARMUPS = 2
SHOWN = 10
TRACE = 'trace'
PACKAGES = 'jax', 'jaxlib', 'flax', 'optax'


def run(
  workload: workload_lib.Workload, rows: int, steps: int, workdir: pathlib.Path
) -> dict[str, Any]:
  """Compiles, runs and traces `steps` steps; the trace goes to `workdir`.

  Returns:
    See the module's docstring.
  """
  with activity.doing('compiling the step and its parts'):
    parts = parts_lib.measure(workload, rows)
  with activity.doing(f'running {WARMUPS + steps} steps'):
    runner = workload_lib.Runner(workload, rows, parts.step)
    runner.run(WARMUPS)
    seconds = runner.run(steps)
    source, peak = runner.peak()
  with activity.doing(f'tracing {steps} steps'):
    with jax.profiler.trace(workdir / TRACE, profiler_options=_options()):
      traced = runner.run(steps)
  program = hlo.Program(parts.step.as_text())
  result = _compiled(workload, rows, parts, program)
  path = trace_lib.newest(workdir / TRACE)
  result['memory']['device'] = {'source': source, 'peak_bytes': peak}
  result['time'] |= {
    'steps': steps,
    'median': statistics.median(seconds),
    'seconds': seconds,
    'seconds_with_trace': traced,
  }
  result['trace'] = {'file': str(path.relative_to(workdir))} | describe(
    trace_lib.read(path, program.name), program, traced
  )
  return result


def compile_only(workload: workload_lib.Workload, rows: int) -> dict[str, Any]:
  """Compiles a step for target.using's GPU; nothing runs.

  Returns:
    See the module's docstring.
  """
  with activity.doing('compiling the step and its parts'):
    with tempfile.TemporaryDirectory() as folder:
      with kernels_lib.writing(folder) as options:
        parts = parts_lib.measure(workload, rows, options)
      kernels = kernels_lib.read(folder)
  program = hlo.Program(parts.step.as_text())
  return _compiled(workload, rows, parts, program) | {
    'kernels': [kernel._asdict() for kernel in kernels],
    'predicted': kernel_times.of_step(workload, rows, program, parts.jaxpr),
  }


def _compiled(workload, rows, parts, program):
  mesh = workload.programs.mesh
  sizes = [mesh.shape[name] for name in axes.NAMES]
  return {
    'workload': _workload(workload, rows),
    'memory': {
      'arrays': parts.arrays,
      'kept_for_backward': parts.kept,
      'programs': {
        name: memory._asdict() | {'total': memory.total}
        for name, memory in parts.programs.items()
      },
    },
    'cost': parts.costs,
    'time': {'compile_seconds': parts.compile_seconds},
    'sent': [part._asdict() for part in sent_lib.of(program, sizes)],
    'buffers': [
      {
        'bytes': size,
        'array': array,
        'operation': operation.name,
        'module': operation.module,
      }
      for size, array, operation in program.largest(SHOWN)
    ],
    'versions': {'python': platform.python_version()}
    | provenance.versions(PACKAGES),
    'commit': provenance.commit(),
  }


def describe(
  events: list[trace_lib.Event], program: hlo.Program, seconds: list[float]
) -> dict[str, Any]:
  """Returns the 'trace' of a report: shares, operations and modules.

  Args:
    events: of the steps.
    program: the one that ran.
    seconds: of each step, by the host's clock.
  """
  steps = len(seconds)
  events = [e._replace(name=program.of_kernel(e.name)) for e in events]
  leaves = [e for e in events if not program.is_container(e.name)]
  named = [(program.module(e.name), e) for e in leaves]
  total = sum(e.end - e.start for e in leaves)
  return {
    'busy_share': trace_lib.busy(leaves) / 1e9 / sum(seconds),
    'operations': [
      _row(sum_, total, steps) | {'module': program.module(sum_.name)}
      for sum_ in trace_lib.sums((e.name, e) for e in leaves)[:SHOWN]
    ],
    'modules': [
      _row(sum_, total, steps) for sum_ in trace_lib.sums(named)[:SHOWN]
    ],
  }


def _row(sum_, total, steps):
  return {
    'name': sum_.name,
    'seconds_per_step': sum_.nanoseconds / 1e9 / steps,
    'times_per_step': sum_.times / steps,
    'share': sum_.nanoseconds / total,
  }


def _workload(workload, rows):
  config, mesh = workload.config, workload.programs.mesh
  device = mesh.devices.flat[0]
  return {
    'description': workload.describe(),
    'rows': rows,
    'length': config.data.length,
    'vocabulary': workload.tokenizer.size,
    'precision': config.train.precision,
    'accumulate': config.train.accumulate,
    'device': {
      'platform': device.platform,
      'kind': device.device_kind,
      'count': mesh.size,
    },
  }


def _options():
  """Returns options without Python's own calls, which crowd out the rest."""
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0
  return options
