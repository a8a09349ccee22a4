"""Compiles a training step for a mesh and reads it; nothing runs.

For a GPU it is the program of the target's compiler (system/target.py). For
other devices it is that of virtual CPU devices: call `claim` before jax finds
its devices. What a device computes, sends and holds is read from the program.
"""

import dataclasses
import functools
import math
import os
import re
import time

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import pipeline
from rnn_jax.profiling import flops as flops_lib
from rnn_jax.profiling import hlo
from rnn_jax.profiling import sent as sent_lib
from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import target
from rnn_jax.training.memory import batch_size

FLAG = '--xla_force_host_platform_device_count'


@dataclasses.dataclass(frozen=True)
class Program:
  """Counts of what one device's program does.

  Attributes:
    sizes: of the mesh's axes, in the order of axes.NAMES.
    rows: of the whole batch, `length` tokens each.
    parameters: numbers of the whole model.
    flops: {format: operations}, with those of a pipeline's bubble.
    sent: to other devices, of each kind.
    memory: bytes.
    bubble: the share of its time that a stage is idle.
    seconds: how long tracing and compiling took.
  """

  sizes: tuple[int, ...]
  rows: int
  length: int
  parameters: int
  flops: dict[str, float]
  sent: tuple[sent_lib.Sent, ...]
  memory: target.Memory
  bubble: float
  seconds: float

  @property
  def devices(self) -> int:
    """How many devices the mesh has."""
    return math.prod(self.sizes)

  @property
  def sent_bytes(self) -> float:
    """What a device sends in a step."""
    return sum(part.bytes for part in self.sent)

  @property
  def beside_bytes(self) -> float:
    """How much of that travels while the device computes."""
    return sum(part.beside for part in self.sent)

  @property
  def tokens(self) -> int:
    """Tokens of the whole batch."""
    return self.rows * self.length


def claim(devices: int) -> None:
  """Splits this process's CPU, its only platform, into virtual devices.

  Raises:
    RuntimeError: jax has already found other devices.
  """
  given = os.environ.get('XLA_FLAGS', '')
  rest = re.sub(rf'{FLAG}=\d+', '', given).strip()
  os.environ['XLA_FLAGS'] = f'{rest} {FLAG}={devices}'.strip()
  # They represent devices that don't run code for a CPU.
  os.environ['RNN_JAX_NATIVE'] = '0'
  jax.config.update('jax_platforms', 'cpu')
  count, backend = jax.device_count(), jax.default_backend()
  if (count, backend) != (devices, 'cpu'):
    raise RuntimeError(f'jax has {count} {backend} devices already')


def with_mesh(
  config: config_lib.Config, sizes: dict[str, int]
) -> config_lib.Config:
  """Returns the Config with these sizes of the mesh's axes, 1 for the rest.

  Raises:
    InputError: they contradict the config.
  """
  whole = dict.fromkeys(axes.NAMES, 1) | sizes
  if whole['pipe'] == 1:  # then the keys of a pipeline have no effect
    defaults = config_lib.Mesh()
    for key in ('micro_batches', 'schedule'):
      whole[key] = getattr(defaults, key)
  mesh = dataclasses.replace(config.mesh, **whole)
  changed = dataclasses.replace(config, mesh=mesh)
  return config_lib.parse(config_lib.to_dict(changed))


def one_device(config: config_lib.Config) -> config_lib.Config:
  """Returns the Config for one device, without compression of gradients."""
  mesh = dataclasses.replace(config.mesh, compression='')
  return with_mesh(dataclasses.replace(config, mesh=mesh), {})


def workload(config: config_lib.Config) -> workload_lib.Workload:
  """Returns the Workload of a Config on as many devices as its mesh needs."""
  return _workload(config, target.used())


# A search asks for that of one device again and again: its model is traced.
@functools.lru_cache(2)
def _workload(config, gpu):
  count = mesh_lib.fewest(config.mesh)
  return workload_lib.make(config, None if gpu else jax.devices()[:count])


def rows_of(made: workload_lib.Workload, requested: int) -> int:
  """Returns the rows of a step: `requested`, or the config's own if 0.

  Raises:
    InputError: they aren't a multiple of `made.multiple`; the message suggests
      others.
  """
  data = made.config.data
  rows = requested or data.tokens_per_batch // data.length or data.batch_size
  source = f'--rows={rows}' if requested else f'{rows} row(s) by the config'
  if data.memory_gib and not requested:
    errors.refuse(
      'data.memory_gib', data.memory_gib, 'a plan needs its rows: give --rows'
    )
  if rows < 1 or rows % made.multiple:
    less = rows // made.multiple * made.multiple
    near = [str(n) for n in (less, less + made.multiple) if n]
    raise errors.InputError(
      f'{source}: data x fsdp x micro-batches x train.accumulate = '
      f'{made.multiple} must divide them: give --rows={" or ".join(near)}'
    )
  return rows


def compiled(
  made: workload_lib.Workload, rows: int
) -> tuple[Program, jax.stages.Compiled]:
  """Returns a training step of a Workload as it was read, and itself."""
  began = time.perf_counter()
  length, mesh = made.config.data.length, made.programs.mesh
  traced = made.programs.trace_train(rows, length)
  executable = target.compiled(traced)
  sizes = tuple(mesh.shape[name] for name in axes.NAMES)
  program = Program(
    sizes=sizes,
    rows=rows,
    length=length,
    parameters=parameters(made),
    flops=flops_lib.count(traced.jaxpr),
    sent=sent_lib.of(hlo.Program(executable.as_text()), sizes),
    memory=target.memory(executable),
    bubble=bubble(made.config.mesh),
    seconds=time.perf_counter() - began,
  )
  return program, executable


def bubble(options: config_lib.Mesh) -> float:
  """Returns the share of its time that a stage of a pipeline is idle."""
  stages = options.pipe
  return pipeline.bubble_fraction(stages, options.micro_batches or stages)


def parameters(made: workload_lib.Workload) -> int:
  """Returns how many numbers the whole model has."""
  like = made.programs.states.like().params
  return sum(math.prod(x.shape) for x in jax.tree.leaves(like))


def of_one_device(
  config: config_lib.Config, rows: int
) -> tuple[dict[str, float], int]:
  """Returns (operations, bytes of the state) of the same step on one device.

  It is traced and not compiled; for `operations` see flops.count.
  """
  made = workload(one_device(config))
  traced = made.programs.trace_train(rows, config.data.length)
  state = sum(batch_size.state_bytes(made.programs))
  return flops_lib.count(traced.jaxpr), state
