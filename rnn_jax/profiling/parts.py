"""The memory of a training step by its parts, as the compiler counts it.

Parameters, gradients and the optimizer's state are arrays whose sizes are
known. What the forward pass keeps for the backward pass is what its half of
the derivative hands over (`jax.vjp`), compiled by itself: so many bytes leave
that program beside the loss. The forward pass alone, forward and backward, and
the whole step are compiled apart; with train.accumulate = n the first two see
one micro-batch of the n.
"""

import time
from typing import Any
from typing import NamedTuple

import jax

from rnn_jax.data import batch as batch_lib
from rnn_jax.profiling import subject as subject_lib
from rnn_jax.training import memory
from rnn_jax.training import program_memory

FORWARD, BACKWARD, STEP = 'forward', 'forward + backward', 'training step'


class Parts(NamedTuple):
  """What `measure` finds; bytes of each device.

  Attributes:
    arrays: {name: bytes} of what lives from step to step, and of gradients.
    kept: bytes that the forward pass keeps for the backward pass.
    programs: {name: ProgramMemory}.
    costs: {name: {'flops': ..., 'bytes': ...}}, as XLA counts, None where it
      doesn't.
    step: the compiled training step.
    compile_seconds: what it took to trace and compile it.
  """

  arrays: dict[str, int]
  kept: int
  programs: dict[str, program_memory.ProgramMemory]
  costs: dict[str, dict[str, float | None]]
  step: jax.stages.Compiled
  compile_seconds: float


def measure(subject: subject_lib.Subject, rows: int) -> Parts:
  """Compiles the passes of a training step with `rows` rows."""
  steps, length = subject.steps, subject.config.data.length
  params, optimizer = memory.state_bytes(steps, rows)
  passes = _passes(subject, rows // subject.config.train.accumulate)
  programs = {
    name: jax.jit(run).lower(*passes.arguments).compile()
    for name, run in (
      (FORWARD, passes.forward),
      (BACKWARD, passes.backward),
      ('kept', passes.keep),
    )
  }
  kept = program_memory.of(programs.pop('kept')).outputs
  began = time.perf_counter()
  programs[STEP] = steps.compile_train(rows, length)
  compile_seconds = time.perf_counter() - began
  return Parts(
    {
      'parameters': params,
      'gradients': params,
      'optimizer state': optimizer,
    },
    kept,
    {name: program_memory.of(p) for name, p in programs.items()},
    {name: _cost(p) for name, p in programs.items()},
    programs[STEP],
    compile_seconds,
  )


class _Passes(NamedTuple):
  forward: Any
  backward: Any
  keep: Any
  arguments: tuple


def _passes(subject, rows):
  """The functions of (params, batch, key) to compile, and their arguments."""
  steps, task = subject.steps, subject.steps.task

  def loss(params, batch, key):
    state = task.init_state(batch.weights_BxL.shape[0])
    state, sums = task.sums(params, state, batch, key)
    return sums['objective'], (sums, state)

  def keep(params, batch, key):
    _, pull, _ = jax.vjp(
      lambda params: loss(params, batch, key), params, has_aux=True
    )
    return pull

  made = subject_lib.random_batch(
    subject.config, subject.tokenizer.size, rows, seed=0
  )
  like = jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    made,
    jax.tree.broadcast(steps.batch_sharding, made),
  )
  key = jax.eval_shape(lambda: jax.random.key(0))
  arguments = steps.parameters_like(), batch_lib.Batch(*like), key
  backward = jax.value_and_grad(loss, has_aux=True)
  return _Passes(loss, backward, keep, arguments)


def _cost(program):
  found = program.cost_analysis() or {}
  found = found[0] if isinstance(found, list) else found
  return {'flops': found.get('flops'), 'bytes': found.get('bytes accessed')}
