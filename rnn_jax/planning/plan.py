"""A plan: a mesh with its prediction; search.py finds the best mesh.

The rows and tokens of a Request are of the whole batch; bytes and operations
are a device's.
"""

import dataclasses
import math
import re
import statistics
from typing import NamedTuple

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.parallel import axes
from rnn_jax.planning import predict
from rnn_jax.planning import program as program_lib
from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import devices as devices_lib

STEPS = 5  # of a confirmation, after a first that doesn't count
SYNTAX = re.compile(r'(\w+)=(\d+)')


@dataclasses.dataclass(frozen=True)
class Request:
  """What to plan.

  Attributes:
    config: the config; its mesh's sizes are replaced.
    sizes: of the mesh's axes; empty: search for them.
    devices: how many.
    device: the figures of one.
    rows: 0: as the config says.
    efficiency: share of the peak that matmuls reach.
  """

  config: config_lib.Config
  sizes: dict[str, int]
  devices: int
  device: devices_lib.Device
  rows: int = 0
  efficiency: float = predict.EFFICIENCY


class Plan(NamedTuple):
  """A mesh that was compiled.

  Attributes:
    workload: what was compiled.
    program: its counts.
    prediction: its times and memory.
    executable: the compiled step.
  """

  workload: workload_lib.Workload
  program: program_lib.Program
  prediction: predict.Prediction
  executable: jax.stages.Compiled


class Measured(NamedTuple):
  """Real steps on this machine.

  Attributes:
    seconds: the median of a step.
    held: bytes of the train state and the batch, of each device.
    peak: bytes of each device, with those held; see workload.Runner.peak.
  """

  seconds: float
  held: int
  peak: int


def parse_mesh(text: str) -> dict[str, int]:
  """Returns the sizes of 'data=64,fsdp=8'; {} of an empty text.

  Raises:
    InputError: it has another form, an unknown axis, or an axis twice.
  """
  sizes = {}
  for part in filter(None, text.split(',')):
    match = SYNTAX.fullmatch(part)
    if not match or match[1] not in axes.NAMES or int(match[2]) < 1:
      raise errors.InputError(
        f'--mesh={text}: {part!r}: write AXIS=SIZE with an axis of '
        f'{axes.NAMES} and a size of 1 or more, as in data=64,fsdp=8'
      )
    axis = match[1]
    if axis in sizes:
      raise errors.InputError(f'--mesh={text}: {axis} is there twice')
    sizes[axis] = int(match[2])
  return sizes


def count(sizes: dict[str, int], devices: int) -> int:
  """Returns how many devices a mesh needs, or `devices` without a mesh.

  Raises:
    InputError: both are given and contradict each other, or neither is.
  """
  if not sizes and not devices:
    raise errors.InputError(
      '--mesh and --devices are missing: give a mesh, as data=64,fsdp=8, or '
      'how many devices to find one for'
    )
  needed = math.prod(sizes.values()) if sizes else devices
  if devices and needed != devices:
    mesh = ','.join(f'{name}={n}' for name, n in sizes.items())
    raise errors.InputError(
      f'--devices={devices}: --mesh={mesh} has {needed} devices: give sizes '
      f'whose product is {devices}, or leave --devices out'
    )
  return needed


def make(request: Request) -> Plan:
  """Returns the Plan of the requested mesh.

  Raises:
    InputError: the mesh fits neither the config nor its rows.
  """
  config = program_lib.with_mesh(request.config, request.sizes)
  rows = program_lib.rows_of(program_lib.workload(config), request.rows)
  request = dataclasses.replace(request, rows=rows)
  baseline = predict.one_device_seconds(
    config, rows, request.device, request.efficiency
  )
  return compiled(request, config, baseline)


def compiled(
  request: Request, config: config_lib.Config, baseline: float
) -> Plan:
  """Returns the Plan of a Config's own mesh for the rows of a request.

  Args:
    request: its rows, device and efficiency count.
    config: has the mesh's sizes.
    baseline: predict.one_device_seconds of the same batch.
  """
  made = program_lib.workload(config)
  program, executable = program_lib.compiled(made, request.rows)
  prediction = predict.predict(
    program, request.device, baseline, request.efficiency
  )
  return Plan(made, program, prediction, executable)


def by_cpu(request: Request, plan: Plan) -> Plan | None:
  """Returns the same mesh and rows, compiled for virtual CPU devices.

  None: a CPU can't run that step, as with kernels or TF32.
  """
  sizes = dict(zip(axes.NAMES, plan.program.sizes, strict=True))
  same = dataclasses.replace(request, sizes=sizes, rows=plan.program.rows)
  try:
    return make(same)
  except (errors.InputError, NotImplementedError):
    return None


def confirm(plan: Plan) -> Measured:
  """Runs real steps of a plan on this machine's virtual devices."""
  runner = workload_lib.Runner(
    plan.workload, plan.program.rows, plan.executable
  )
  runner.run(1)
  seconds = statistics.median(runner.run(STEPS))
  held = runner.held // plan.program.devices
  return Measured(seconds, held, runner.peak()[1])


def name(sizes: dict[str, int]) -> str:
  """Returns a mesh as --mesh takes it, without axes of size 1."""
  large = [f'{axis}={n}' for axis, n in sizes.items() if n > 1]
  return ','.join(large) or 'data=1'
