"""A config's training step on a mesh of virtual devices, compiled and read.

The devices are the CPU's, which only stand for others: what each of them would
compute, send and hold is read from the program, and nothing runs. `claim` must
come before jax finds its devices.
"""

import dataclasses
import math
import os
import re
import time
from collections.abc import Iterable
from typing import NamedTuple

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.parallel import axes
from rnn_jax.parallel import pipeline
from rnn_jax.planning import flops as flops_lib
from rnn_jax.profiling import collectives
from rnn_jax.profiling import groups
from rnn_jax.profiling import hlo
from rnn_jax.profiling import subject as subject_lib
from rnn_jax.training import memory
from rnn_jax.training import program_memory

FLAG = '--xla_force_host_platform_device_count'
SHARED = 'data', 'fsdp'  # the axes whose devices share rows alone
# The CPU's compiler sums what has 16 bits in 32, and names the sum so; other
# devices send 16.
PROMOTED = re.compile(r'to_apply=%?[\w.\-]*_promoted\b')


class Sent(NamedTuple):
  """What one device sends in a step, by one kind of collective.

  Attributes:
    opcode: as in profiling/collectives.py.
    axes: of the mesh, along which the devices of a group lie.
    bytes: in all.
    runs: of such collectives.
  """

  opcode: str
  axes: tuple[str, ...]
  bytes: float
  runs: int


@dataclasses.dataclass(frozen=True)
class Program:
  """What one device's program does, by count.

  Attributes:
    sizes: of the mesh's axes, in the order of axes.NAMES.
    rows: of the whole batch, `length` tokens each.
    parameters: numbers of the whole model.
    flops: {format: operations}, with those of a pipeline's bubble.
    sent: to other devices.
    memory: bytes.
    bubble: the share of its time that a stage works for nothing.
    seconds: that tracing and compiling took.
  """

  sizes: tuple[int, ...]
  rows: int
  length: int
  parameters: int
  flops: dict[str, float]
  sent: tuple[Sent, ...]
  memory: program_memory.ProgramMemory
  bubble: float
  seconds: float

  @property
  def devices(self) -> int:
    return math.prod(self.sizes)

  @property
  def tokens(self) -> int:
    """Of the whole batch."""
    return self.rows * self.length


def claim(devices: int) -> None:
  """Makes so many virtual devices of this process's CPU, its only platform.

  Raises:
    RuntimeError: jax has found other devices already.
  """
  given = os.environ.get('XLA_FLAGS', '')
  rest = re.sub(rf'{FLAG}=\d+', '', given).strip()
  os.environ['XLA_FLAGS'] = f'{rest} {FLAG}={devices}'.strip()
  # These stand for other devices, which don't run what is written for a CPU.
  os.environ['RNN_JAX_NATIVE'] = '0'
  jax.config.update('jax_platforms', 'cpu')
  found = jax.device_count()
  if found != devices or jax.default_backend() != 'cpu':
    raise RuntimeError(f'{found} {jax.default_backend()} devices are there')


def with_mesh(
  config: config_lib.Config, sizes: dict[str, int]
) -> config_lib.Config:
  """Returns the Config with these sizes of the mesh's axes, 1 for the rest.

  Raises:
    InputError: they contradict the config.
  """
  whole = dict.fromkeys(axes.NAMES, 1) | sizes
  mesh = dataclasses.replace(config.mesh, **whole)
  changed = dataclasses.replace(config, mesh=mesh)
  return config_lib.parse(config_lib.to_dict(changed))


def alone(config: config_lib.Config) -> config_lib.Config:
  """Returns the Config for one device, which sums no gradients of others."""
  mesh = dataclasses.replace(config.mesh, compression='')
  return with_mesh(dataclasses.replace(config, mesh=mesh), {})


def subject(config: config_lib.Config) -> subject_lib.Subject:
  """Returns the Subject of a Config on the first devices, as its mesh needs."""
  count = math.prod(getattr(config.mesh, name) for name in axes.NAMES)
  return subject_lib.make(config, jax.devices()[:count])


def rows_of(made: subject_lib.Subject, asked: int) -> int:
  """Returns the rows of a step: `asked`, or the config's own if 0.

  Raises:
    InputError: the mesh doesn't divide them; the message suggests others.
  """
  data = made.config.data
  rows = asked or data.tokens_per_batch // data.length or data.batch_size
  told = f'--rows={rows}' if asked else f'{rows} row(s) by the config'
  if data.memory_gib and not asked:
    raise errors.InputError(
      f'data.memory_gib={data.memory_gib}: a plan needs its rows: give --rows'
    )
  if rows < 1 or rows % made.multiple:
    less = rows // made.multiple * made.multiple
    near = [str(n) for n in (less, less + made.multiple) if n]
    raise errors.InputError(
      f'{told}: data x fsdp x micro-batches x train.accumulate = '
      f'{made.multiple} must divide them: give --rows={" or ".join(near)}'
    )
  return rows


def compiled(
  made: subject_lib.Subject, rows: int
) -> tuple[Program, jax.stages.Compiled]:
  """Returns a training step of a Subject as it was read, and itself."""
  began = time.perf_counter()
  length, mesh = made.config.data.length, made.steps.mesh
  traced = made.steps.trace_train(rows, length)
  found = traced.lower().compile()
  sizes = tuple(mesh.shape[name] for name in axes.NAMES)
  read = Program(
    sizes=sizes,
    rows=rows,
    length=length,
    parameters=parameters(made),
    flops=flops_lib.count(traced.jaxpr),
    sent=sent(found.as_text(), sizes),
    memory=program_memory.of(found),
    bubble=bubble(made.config.mesh),
    seconds=time.perf_counter() - began,
  )
  return read, found


def bubble(options: config_lib.Mesh) -> float:
  """Returns the share of its time that a stage of a pipeline waits."""
  stages = options.pipe
  return pipeline.bubble_share(stages, options.micro_batches or stages)


def parameters(made: subject_lib.Subject) -> int:
  """Returns how many numbers the whole model has."""
  like = made.steps.parameters_like()
  return sum(math.prod(x.shape) for x in jax.tree.leaves(like))


def of_one_device(
  config: config_lib.Config, rows: int
) -> tuple[dict[str, float], int]:
  """Returns (operations, bytes of the state) of the same step on one device.

  It is traced and not compiled; `operations` as of flops.count.
  """
  made = subject(alone(config))
  traced = made.steps.trace_train(rows, config.data.length)
  state = sum(memory.state_bytes(made.steps, rows))
  return flops_lib.count(traced.jaxpr), state


def sent(text: str, sizes: Iterable[int]) -> tuple[Sent, ...]:
  """Returns what a device sends, by collective and by the axes of its group.

  Args:
    text: of the compiled program.
    sizes: of the mesh's axes.
  """
  program, sizes = hlo.Program(text), tuple(sizes)
  total = {}
  for found, operation in collectives.with_operations(program):
    joined = groups.members(operation.attributes, math.prod(sizes))
    key = found.opcode, groups.along(joined, sizes, axes.NAMES)
    size, runs = total.get(key, (0, 0))
    own = collectives.sent_bytes(found)
    own /= 2 if PROMOTED.search(operation.attributes) else 1
    total[key] = size + own, runs + found.times
  return tuple(Sent(*key, *value) for key, value in sorted(total.items()))
