"""How long a training step takes on several GPUs, from its kernels: predicted.

    sending_c = bytes sent by collective c / slowest link that its group spans
    exposed_c = max(0, sending_c - seconds of the kernels beside it)
    step      = sum of all kernels + sum_c exposed_c

The kernels' times are those of profiling/kernel_times.py; beside a collective
are those between its start and its end in the compiled schedule
(profiling/sent.py). Where such windows overlap, a kernel counts in each of
them. Links have their full bandwidth, without latency, and kernels aren't
slowed down by what is sent meanwhile.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rnn_jax.parallel import axes
from rnn_jax.planning import predict
from rnn_jax.profiling import collectives
from rnn_jax.profiling import hlo
from rnn_jax.profiling import kernel_times
from rnn_jax.profiling import sent as sent_lib
from rnn_jax.system import devices as devices_lib


class StepTime(NamedTuple):
  """Seconds of a step.

  Attributes:
    kernels: of all kernels.
    sending: {axes of the mesh, as 'data+fsdp': seconds of what is sent}.
    exposed: {axes: seconds of these that no kernel hides}.
  """

  kernels: float
  sending: dict[str, float]
  exposed: dict[str, float]

  @property
  def step(self) -> float:
    """What the step takes."""
    return self.kernels + sum(self.exposed.values())


def of(
  program: hlo.Program,
  kernels: Sequence[kernel_times.Kernel],
  sizes: Sequence[int],
  device: devices_lib.Device,
) -> StepTime:
  """Returns the StepTime of a program.

  Args:
    program: as it was compiled for several GPUs.
    kernels: of kernel_times.of.
    sizes: of the mesh's axes.
    device: the figures of a GPU.
  """
  each = {one.name: one.seconds / one.runs for one in kernels}
  beside = sent_lib.computed_beside(program)
  sending: dict[str, float] = {}
  exposed: dict[str, float] = {}
  for collective, operation in collectives.with_operations(program):
    joined = collectives.members(operation.attributes, math.prod(sizes))
    along = collectives.along(joined, tuple(sizes), axes.NAMES)
    key = '+'.join(along)
    seconds = collective.sent / predict.link(along, sizes, device)
    hidden = sum(_seconds(program, each, x) for x in beside[operation.name])
    left = max(0.0, seconds - collective.times * hidden)
    sending[key] = sending.get(key, 0.0) + seconds
    exposed[key] = exposed.get(key, 0.0) + left
  return StepTime(sum(one.seconds for one in kernels), sending, exposed)


def _seconds(program, each, name):
  """Returns the seconds of a run of an operation, of a loop those of all."""
  line = program.computations[program.homes[name]][name]
  if line.opcode not in hlo.CONTAINERS:
    return each.get(name, 0.0)
  inner = (x for called in line.called for x in program.bodies.get(called, ()))
  return line.iterations * sum(_seconds(program, each, x) for x in inner)
