"""A plan: a mesh, and what it predicts; search.py finds one.

`rows` of a Request are of the whole batch, and so is all that is told in
tokens; bytes and operations are a device's.
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
from rnn_jax.planning import devices as devices_lib
from rnn_jax.planning import predict
from rnn_jax.planning import program as program_lib
from rnn_jax.profiling import runner as runner_lib
from rnn_jax.profiling import subject as subject_lib

STEPS = 5  # real ones of a confirmation, behind a first that does not count
SYNTAX = re.compile(r'(\w+)=(\d+)')


@dataclasses.dataclass(frozen=True)
class Request:
  """What is asked for.

  Attributes:
    config: whose mesh's sizes are replaced.
    sizes: of the mesh's axes; empty: searched for.
    devices: how many.
    device: the figures of one.
    rows: 0: as the config says.
    efficiency: share of the peak.
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
    subject: what was compiled.
    program: as it was read.
    prediction: of it.
    executable: the compiled step itself.
  """

  subject: subject_lib.Subject
  program: program_lib.Program
  prediction: predict.Prediction
  executable: jax.stages.Compiled


class Measured(NamedTuple):
  """Real steps on this machine.

  Attributes:
    seconds: the median of a step.
    held: bytes of the train state and the batch, of each device.
    peak: bytes of each device, those among them, see runner.Runner.peak.
  """

  seconds: float
  held: int
  peak: int


def parse_mesh(text: str) -> dict[str, int]:
  """Returns the sizes of 'data=64,fsdp=8'; {} of an empty text.

  Raises:
    InputError: it is written otherwise, or an axis is none or comes twice.
  """
  sizes = {}
  for part in filter(None, text.split(',')):
    found = SYNTAX.fullmatch(part)
    if not found or found[1] not in axes.NAMES or int(found[2]) < 1:
      raise errors.InputError(
        f'--mesh={text}: {part!r}: write AXIS=SIZE with an axis of '
        f'{axes.NAMES} and a size of 1 or more, as in data=64,fsdp=8'
      )
    if found[1] in sizes:
      raise errors.InputError(f'--mesh={text}: {found[1]} comes twice')
    sizes[found[1]] = int(found[2])
  return sizes


def count(sizes: dict[str, int], devices: int) -> int:
  """Returns how many devices a mesh needs, or `devices` where there is none.

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
    told = ','.join(f'{name}={n}' for name, n in sizes.items())
    raise errors.InputError(
      f'--devices={devices}: --mesh={told} makes up {needed}: give sizes whose '
      f'product is {devices}, or leave --devices out'
    )
  return needed


def make(request: Request) -> Plan:
  """Returns the Plan of the mesh that is asked for.

  Raises:
    InputError: the mesh fits neither the config nor its rows.
  """
  config = program_lib.with_mesh(request.config, request.sizes)
  rows = program_lib.rows_of(program_lib.subject(config), request.rows)
  request = dataclasses.replace(request, rows=rows)
  alone = predict.alone(config, rows, request.device, request.efficiency)
  return compiled(request, config, alone)


def compiled(request: Request, config: config_lib.Config, alone: float) -> Plan:
  """Returns the Plan of a Config's own mesh for the rows of a request.

  Args:
    request: rows, device and efficiency of it count.
    config: the mesh's sizes are in it.
    alone: predict.alone of the same batch.
  """
  made = program_lib.subject(config)
  program, executable = program_lib.compiled(made, request.rows)
  prediction = predict.predict(
    program, request.device, alone, request.efficiency
  )
  return Plan(made, program, prediction, executable)


def confirm(plan: Plan) -> Measured:
  """Runs real steps of a plan on this machine's virtual devices."""
  runner = runner_lib.Runner(plan.subject, plan.program.rows, plan.executable)
  runner.run(1)
  seconds = statistics.median(runner.run(STEPS))
  held = runner.held // plan.program.devices
  return Measured(seconds, held, runner.peak()[1])


def name(sizes: dict[str, int]) -> str:
  """Returns a mesh as --mesh takes it, without axes of size 1."""
  told = [f'{axis}={n}' for axis, n in sizes.items() if n > 1]
  return ','.join(told) or 'data=1'
