"""The memory of a training step by its parts, as the compiler counts it.

Parameters, gradients and the optimizer's state are arrays of known sizes. What
the forward pass keeps for the backward pass are the residuals of `jax.vjp`: the
outputs of a program that is compiled by itself. The forward pass, forward and
backward, and the whole step are compiled separately; with train.accumulate = n
the first two see one micro-batch of the n.
"""

import time
from typing import Any
from typing import NamedTuple

import jax
from jax.extend import core

from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import target
from rnn_jax.training.memory import batch_size

FORWARD, BACKWARD, STEP = 'forward', 'forward + backward', 'training step'


class Parts(NamedTuple):
  """The parts of a step; bytes of each device.

  Attributes:
    arrays: {name: bytes} of the train state and of gradients.
    kept: bytes that the forward pass keeps for the backward pass.
    programs: {name: ProgramMemory}.
    costs: {name: {'flops': ..., 'bytes': ...}} by XLA, None if it has none.
    step: the compiled training step.
    jaxpr: what it was compiled from.
    compile_seconds: how long it took to trace and compile it.
  """

  arrays: dict[str, int]
  kept: int
  programs: dict[str, target.Memory]
  costs: dict[str, dict[str, float | None]]
  step: jax.stages.Compiled
  jaxpr: core.ClosedJaxpr
  compile_seconds: float


def measure(
  workload: workload_lib.Workload,
  rows: int,
  options: dict[str, str] | None = None,
) -> Parts:
  """Compiles the parts of a training step with `rows` rows.

  Args:
    workload: the config, on its devices.
    rows: of a batch.
    options: of XLA, for the step only.
  """
  params, optimizer = batch_size.state_bytes(workload.programs)
  parts = _parts(workload, rows)
  programs = {
    name: target.compiled(jax.jit(run).trace(*parts.arguments))
    for name, run in ((FORWARD, parts.forward), (BACKWARD, parts.backward))
  }
  began = time.perf_counter()
  length = workload.config.data.length
  traced = workload.programs.trace_train(rows, length)
  programs[STEP] = target.compiled(traced, options)
  compile_seconds = time.perf_counter() - began
  return Parts(
    {
      'parameters': params,
      'gradients': params,
      'optimizer state': optimizer,
    },
    kept(workload, rows),
    {name: target.memory(p) for name, p in programs.items()},
    {name: _cost(p) for name, p in programs.items()},
    programs[STEP],
    traced.jaxpr,
    compile_seconds,
  )


def kept(workload: workload_lib.Workload, rows: int) -> int:
  """Returns the bytes that the forward pass keeps for the backward pass."""
  parts = _parts(workload, rows)
  program = target.compiled(jax.jit(parts.keep).trace(*parts.arguments))
  return target.memory(program).outputs


class _Parts(NamedTuple):
  forward: Any
  backward: Any
  keep: Any
  arguments: tuple


def _parts(workload, rows):
  """Returns functions of (params, batch, key) to compile, and arguments."""
  programs, task = workload.programs, workload.programs.task
  rows //= workload.config.train.accumulate

  def loss(params, batch, key):
    state = task.init_state(batch.weights_BxL.shape[0])
    return task.loss(params, state, batch, key)

  def keep(params, batch, key):
    _, pull, _ = jax.vjp(
      lambda params: loss(params, batch, key), params, has_aux=True
    )
    return pull

  batch = programs.batch_like(rows, workload.config.data.length)
  key = jax.eval_shape(lambda: jax.random.key(0))
  arguments = programs.states.like().params, batch, key
  backward = jax.value_and_grad(loss, has_aux=True)
  return _Parts(loss, backward, keep, arguments)


def _cost(program):
  cost = program.cost_analysis() or {}
  cost = cost[0] if isinstance(cost, list) else cost
  return {'flops': cost.get('flops'), 'bytes': cost.get('bytes accessed')}
