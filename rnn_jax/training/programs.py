"""The compiled programs of a run: one training and one evaluation step.

The parts of a config become the steps of training/step.py, which are jitted: a
program for each shape of a batch.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import optax

from rnn_jax import config as config_lib
from rnn_jax.config import compiler
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import rules
from rnn_jax.system import target
from rnn_jax.training import adapted
from rnn_jax.training import gradients
from rnn_jax.training import over_devices
from rnn_jax.training import pruning
from rnn_jax.training import states as states_lib
from rnn_jax.training import step as step_lib
from rnn_jax.training import update_norms


def from_config(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  devices: Sequence[jax.Device] | None = None,
) -> 'Programs':
  """Returns the programs of a Config on its mesh of `devices`, all if None.

  Raises:
    InputError: the mesh doesn't fit the devices or the model, or the teacher
      doesn't fit the task.
  """
  mesh = mesh_lib.make(config.mesh, devices)
  return Programs(make_task(config, tokenizer), config, mesh)


def make_task(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> Any:
  """Returns the task of a Config, with the models that its loss reads.

  Raises:
    InputError: the teacher or the reference doesn't fit it.
  """
  if config.distillation.teacher:
    from rnn_jax.training import distillation  # few runs need it

    return distillation.make(config, tokenizer)
  tasks = config_lib.load('tasks', config.task.name, 'task.name')
  task = tasks.make(config, tokenizer).opened()
  return adapted.Task(task, config.adapters) if config.adapters.rank else task


class Programs:
  """The training and evaluation steps of a run, compiled for each batch shape.

  Attributes:
    train_step: (state, batch) -> (state, metrics); it donates the state.
    compute_gradients: (state, batch) -> (gradients of the mean loss, parameter
      updates, sums) of a step that isn't taken; the carry has the batch's rows.
    evaluate_step: (params, carry, batch) -> (carry, sums) without dropout; it
      donates the carry.
    task: what is trained.
    mesh: of the devices.
    states: makes the train states.
    batch_sharding: the shardings of a batch.
    row_multiple: divides the rows of each batch of an evaluation; of training,
      each of `train.accumulate` slices.
    own_rows: which of so many rows this process's devices take; None: all.
    traces: the number of programs that were traced, and so compiled.
  """

  def __init__(
    self, task: Any, config: config_lib.Config, mesh: jax.sharding.Mesh
  ) -> None:
    """Builds the steps; nothing is compiled before its first call.

    Raises:
      InputError: as `states.States`, or this platform lacks `train.compiler`.
    """
    self.task, self.mesh = task, mesh
    self.states = states_lib.States(task, config, mesh)
    self.traces = 0
    self.batch_sharding = jax.tree.map(
      lambda spec: rules.sharding(mesh, spec), over_devices.BATCH_SPEC
    )
    self.row_multiple = mesh_lib.row_multiple(mesh, config.mesh)
    self.own_rows = mesh_lib.own_rows(self.batch_sharding.tokens_BxL)
    self._compiler = compiler.options(config.train.compiler, target.platform())
    loss_fn = step_lib.make_loss_fn(task, config.data.carry_state)
    parts = _parts(loss_fn, self.states, config)
    self._train_step = self._jit(step_lib.make_train_step(parts), (0,))
    self.train_step = self._one_at_a_time(self._train_step)
    self.compute_gradients = self._one_at_a_time(
      self._jit(step_lib.make_compute_gradients(parts))
    )
    evaluate_step = _evaluate_step(loss_fn, self.states)
    self._evaluate_step = self._jit(evaluate_step, (1,))
    self.evaluate_step = self._one_at_a_time(self._evaluate_step)

  def put(self, batch: batch_lib.Batch) -> batch_lib.Batch:
    """Returns a batch on the devices."""
    return mesh_lib.put(batch, self.batch_sharding)

  def compile_train(self, rows: int, length: int) -> jax.stages.Compiled:
    """Compiles the training step of a batch shape."""
    return target.compiled(self.trace_train(rows, length))

  def train_bytes(self, rows: int, length: int) -> int | None:
    """Returns the bytes that a training step takes of a device.

    It is what the compiler reports of the program for this batch shape, which
    must have run: nothing is compiled. None where it isn't known, as over
    several devices.
    """
    if self.mesh.size > 1:
      return None
    traces = self.traces
    traced = self.trace_train(rows, length)
    if self.traces > traces:  # not the program that has run
      self.traces = traces
      return None
    try:
      return target.memory(target.compiled(traced)).total
    except NotImplementedError:
      return None

  def trace_train(self, rows: int, length: int) -> jax.stages.Traced:
    """Traces the training step of a batch shape."""
    state = self.states.like(rows)
    return self._train_step.trace(state, self.batch_like(rows, length))

  def trace_evaluate(self, rows: int, length: int) -> jax.stages.Traced:
    """Traces the evaluation step of a batch shape."""
    state = self.states.like(rows)
    batch = self.batch_like(rows, length)
    return self._evaluate_step.trace(state.params, state.carry, batch)

  def batch_like(self, rows: int, length: int) -> batch_lib.Batch:
    """Returns the shapes, dtypes and shardings of a batch."""
    batch = jax.tree.map(  # from one row: `rows` may not fit in memory
      lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype),
      self.task.blank_batch(1, length),
    )
    return states_lib.with_shardings(batch, self.batch_sharding)

  def _one_at_a_time(self, jitted):
    """Returns a function that waits for its results on virtual devices.

    They share one pool of threads: two steps in flight can each hold threads
    that the other's all-reduce waits for.
    """
    if self.mesh.size == 1 or jax.default_backend() != 'cpu':
      return jitted
    return lambda *args: jax.block_until_ready(jitted(*args))

  def _jit(self, function, donated=()):
    """Returns a jitted function whose traces are counted."""

    @functools.wraps(function)
    def counted(*args):
      self.traces += 1
      return function(*args)

    return jax.jit(
      counted, donate_argnums=donated, compiler_options=self._compiler
    )


def _parts(loss_fn, states, config):
  """Returns what a training step is made of."""
  return step_lib.Parts(
    gradients.MeanGradient(
      loss_fn,
      states.optimizer,
      states.placement,
      states.carry_axes,
      config.train,
      config.mesh,
    ),
    states.optimizer.tx,
    states.schedule.rate,
    _apply_updates(states.optimizer.frozen, config.pruning),
    update_norms.measure if config.train.update_norms else update_norms.ignore,
    config.train.loss_scale_steps,
    states.place,
  )


def _apply_updates(frozen, options):
  """Returns (state, updates) -> parameters; frozen ones don't change."""

  def apply(state, updates):
    params = optax.apply_updates(state.params, updates)
    if options.sparsity:
      params = pruning.update(state.step, state.params, params, options)
    return jax.tree.map(  # bit for bit, -0 and pruned numbers included
      lambda frozen, old, new: old if frozen else new,
      frozen,
      state.params,
      params,
    )

  return apply


def _evaluate_step(loss_fn, states):
  """Returns the evaluation step of a whole batch."""
  place = states.placement
  return step_lib.make_evaluate_step(
    over_devices.gather_parameters(
      loss_fn, place.axes_outside_layers, place.rules
    ),
    functools.partial(
      over_devices.sum_evaluation,
      placement=place,
      carry_specs=states.carry_specs,
    ),
  )
