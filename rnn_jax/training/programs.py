"""The compiled programs of a run, and where their arrays are on its mesh.

Here the parts of a config become one training step and one evaluation step
(training/step.py), which are jitted: a program for each shape of a batch.
"""

import contextlib
import functools
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import compiler
from rnn_jax.data import pipeline
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import adapters
from rnn_jax.models import int8_weights
from rnn_jax.parallel import compression
from rnn_jax.parallel import fsdp
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import placement
from rnn_jax.parallel import rules
from rnn_jax.system import target
from rnn_jax.training import gradients
from rnn_jax.training import loss_scale
from rnn_jax.training import optimizer as optimizer_lib
from rnn_jax.training import over_devices
from rnn_jax.training import pruning
from rnn_jax.training import schedule as schedule_lib
from rnn_jax.training import step as step_lib
from rnn_jax.training import train_state
from rnn_jax.training import update_norms

PyTree = Any
TrainState = train_state.TrainState


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
  return tasks.make(config, tokenizer).opened()


@contextlib.contextmanager
def _named_cell(model):
  """Adds the cell's name to an InputError about one of its parameters."""
  try:
    yield
  except errors.InputError as error:
    if '/cell/' not in str(error):
      raise
    named = (
      f'model.cells={model.cells}'
      if model.cells
      else (f'model.cell={model.cell!r}')
    )
    raise errors.InputError(f'{named}: {error}') from error


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
    placement: the shardings of the parameters and of what goes with them.
    batch_sharding: the shardings of a batch.
    traces: the number of programs that were traced, and so compiled.
    follows_evaluations: whether evaluations change the learning rate.
  """

  def __init__(
    self, task: Any, config: config_lib.Config, mesh: jax.sharding.Mesh
  ) -> None:
    """Builds the steps; nothing is compiled before its first call.

    Raises:
      InputError: the mesh doesn't fit the model, patterns of the section
        `optimizer` match no parameter, or there are no gradients to compress.
    """
    self.task, self.mesh, self._config = task, mesh, config
    self.traces = 0
    self.batch_sharding = jax.tree.map(
      lambda spec: rules.sharding(mesh, spec), over_devices.BATCH_SPEC
    )
    # Jitted so that its trace serves the shapes and the initial state.
    self._init_parameters = jax.jit(self._parameters)
    shapes = jax.eval_shape(lambda: self._init_parameters(jax.random.key(0)))
    with _named_cell(config.model):
      self.placement = placement.Placement(
        mesh, config.mesh, shapes, self._logical_axes(shapes)
      )
    optimizer_lib.check_names(config, self.placement.shapes)
    _check_compression(config, mesh)
    carries = config.data.carry_state
    self._state_axes = task.state_axes() if carries else None
    self._carry_specs = self.placement.carry_specs(self._state_axes)
    self._schedule = schedule_lib.make(config)
    self.follows_evaluations = self._schedule.rescale is not None
    self._make_optimizer()
    self._init = jax.jit(
      self._new_state,
      static_argnums=(0, 1),
      out_shardings=self._state_shardings(),
    )
    loss_fn = step_lib.make_loss_fn(task, carries)
    if config.adapters.rank:
      loss_fn = gradients.merge_adapters(
        loss_fn, config.adapters, task.reads_unchanged
      )
    self._make_training(loss_fn)
    self._make_evaluation(loss_fn)

  def _parameters(self, key):
    params = self.task.init_parameters(key)
    if self._config.adapters.rank:
      key = jax.random.fold_in(key, gradients.ADAPTERS)
      options = self._config.adapters
      changes = adapters.init(key, params, options)
      params = {**adapters.hold(params, options), adapters.KEY: changes}
    return params

  def _logical_axes(self, shapes):
    names = self.task.logical_axes()
    if not self._config.adapters.rank:
      return names
    model, _ = adapters.split(shapes)
    model = jax.eval_shape(int8_weights.unpack, model)
    return adapters.logical_axes(shapes, fsdp.logical_axes(model, names))

  def _make_optimizer(self):
    config, shapes = self._config, self.placement.shapes
    self._frozen = optimizer_lib.frozen_mask(config, shapes)
    # Not with the jitted function: the calls of Dense layers must be traced.
    self._factors = optimizer_lib.factor_shapes(
      config, self.task.init_parameters, shapes
    )
    self._tx = optimizer_lib.make(
      config,
      self._schedule.rate,
      self.placement.stacked,
      self._factors,
      self._frozen,
    )

  def _make_training(self, loss_fn):
    config = self._config
    measure = update_norms.measure
    parts = step_lib.Parts(
      gradients.MeanGradient(
        loss_fn, config, self.placement, self._state_axes, self._factors
      ),
      self._tx,
      self._schedule.rate,
      self._apply_updates,
      measure if config.train.update_norms else update_norms.ignore,
      config.train.loss_scale_steps,
      self._place,
    )
    self._train_step = self._jit(step_lib.make_train_step(parts), (0,))
    self.train_step = self._one_at_a_time(self._train_step)
    self.compute_gradients = self._one_at_a_time(
      self._jit(step_lib.make_compute_gradients(parts))
    )

  def _make_evaluation(self, loss_fn):
    evaluate_step = step_lib.make_evaluate_step(
      over_devices.gather_parameters(
        loss_fn, self.placement.axes_outside_layers, self.placement.rules
      ),
      functools.partial(
        over_devices.sum_evaluation,
        placement=self.placement,
        carry_specs=self._carry_specs,
      ),
    )
    self._evaluate_step = self._jit(evaluate_step, (1,))
    self.evaluate_step = self._one_at_a_time(self._evaluate_step)

  def init(self, seed: int, rows: int) -> TrainState:
    """Returns a new train state on the mesh, with a carry of `rows` rows."""
    return self._init(seed, rows)

  def init_from_data(
    self, state: TrainState, corpus: pipeline.Corpus
  ) -> TrainState:
    """Returns a new train state whose parameters may depend on a corpus."""
    params = self.task.init_from_data(state.params, corpus)
    if params is state.params:
      return state
    shardings = self.placement.shardings('parameters')
    return self.init_from(state, jax.device_put(params, shardings))

  def init_from(self, state: TrainState, params: PyTree) -> TrainState:
    """Returns a new train state that starts from these parameters."""
    state = state.replace(params=params)
    if not optimizer_lib.gradient_point(self._config):
      return state
    # The optimizer's state holds parameters as well.
    init = jax.jit(
      self._tx.init, out_shardings=self._state_shardings().opt_state
    )
    return state.replace(opt_state=init(params))

  def rescale(self, state: TrainState, evaluations: int) -> TrainState:
    """Returns the state with the learning rate after an evaluation.

    Args:
      state: a train state.
      evaluations: the number of evaluations since the best one.
    """
    if self._schedule.rescale is None:
      return state
    step, scale = jax.device_get((state.step, state.rate_scale))
    scale = self._schedule.rescale(int(step), float(scale), evaluations)
    placed = jax.device_put(np.float32(scale), self.placement.replicated)
    return state.replace(rate_scale=placed)

  def parameters_like(self) -> PyTree:
    """Returns the parameters' shapes, dtypes and shardings."""
    return self.parts_like(('params',))['params']

  def parts_like(self, names: Iterable[str]) -> dict[str, PyTree]:
    """Returns the shapes, dtypes and shardings of fields of a train state.

    Args:
      names: of the fields.

    Returns:
      {name: tree}; the carry has one row.
    """
    state = jax.eval_shape(lambda: self._new_state(0, 1)).entries()
    shardings = self._state_shardings().entries()
    return {
      name: _with_shardings(state[name], shardings[name]) for name in names
    }

  def init_carry(self, rows: int) -> PyTree:
    """Returns the carry before an evaluation; None if none is carried."""
    if not self._config.data.carry_state:
      return None
    return jax.jit(
      lambda: self.task.init_state(rows), out_shardings=self._carry_shardings()
    )()

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
    state = jax.eval_shape(lambda: self._new_state(0, rows))
    state = _with_shardings(state, self._state_shardings())
    return self._train_step.trace(state, self.batch_like(rows, length))

  def trace_evaluate(self, rows: int, length: int) -> jax.stages.Traced:
    """Traces the evaluation step of a batch shape."""
    carry = jax.eval_shape(lambda: self.init_carry(rows))
    if carry is not None:
      carry = _with_shardings(carry, self._carry_shardings())
    batch = self.batch_like(rows, length)
    return self._evaluate_step.trace(self.parameters_like(), carry, batch)

  def batch_like(self, rows: int, length: int) -> batch_lib.Batch:
    """Returns the shapes, dtypes and shardings of a batch."""
    batch = jax.tree.map(  # from one row: `rows` may not fit in memory
      lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype),
      self.task.blank_batch(1, length),
    )
    return _with_shardings(batch, self.batch_sharding)

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

    options = compiler.options(self._config.train.compiler, target.platform())
    return jax.jit(counted, donate_argnums=donated, compiler_options=options)

  def _place(self, state):
    """Returns a step's new state, placed as the old one was."""
    state = jax.lax.with_sharding_constraint(
      state, self._state_shardings(offloaded=False)
    )
    opt_state = jax.device_put(
      state.opt_state, self._state_shardings().opt_state
    )
    return state.replace(opt_state=opt_state)

  def _apply_updates(self, state, updates):
    """Returns new parameters; frozen and pruned ones don't change."""
    params = optax.apply_updates(state.params, updates)
    if self._config.pruning.sparsity:
      params = pruning.update(
        state.step, state.params, params, self._config.pruning
      )
    return jax.tree.map(  # bit for bit, -0 and pruned numbers included
      lambda frozen, old, new: old if frozen else new,
      self._frozen,
      state.params,
      params,
    )

  def _state_shardings(self, offloaded=True):
    opt_state = self.placement.optimizer_shardings(
      jax.eval_shape(self._tx.init, self.placement.shapes)
    )
    if offloaded and self._config.optimizer.offload:
      opt_state = jax.tree.map(placement.to_host, opt_state)
    whole = self.placement.replicated
    state = TrainState(
      params=self.placement.shardings('parameters'),
      opt_state=opt_state,
      carry=self._carry_shardings(),
      loss_scale=whole,
      step=whole,
      skipped=whole,
      rate_scale=whole,
      key=whole,
    )
    if not self._config.mesh.compression:
      return state
    return state.replace(
      error_feedback=self.placement.shardings('error_feedback')
    )

  def _carry_shardings(self):
    return jax.tree.map(
      lambda spec: rules.sharding(self.mesh, spec), self._carry_specs
    )

  def _new_state(self, seed, rows):
    key = jax.random.key(seed)
    params = self._init_parameters(jax.random.fold_in(key, 0))
    carries = self._config.data.carry_state
    state = TrainState(
      params=params,
      opt_state=self._tx.init(params),
      carry=self.task.init_state(rows) if carries else None,
      loss_scale=loss_scale.init(self._config.train),
      step=jnp.zeros((), jnp.int32),
      skipped=jnp.zeros((), jnp.int32),
      rate_scale=jnp.ones((), jnp.float32),
      key=jax.random.key_data(jax.random.fold_in(key, 1)),
    )
    if not self._config.mesh.compression:
      return state
    feedback = compression.init(params, self.mesh.shape['data'])
    return state.replace(error_feedback=feedback)


def _check_compression(config, mesh):
  kind = config.mesh.compression
  if kind and mesh.shape['data'] == 1:
    raise errors.InputError(
      f'mesh.compression={kind!r}: mesh.data is 1 on {mesh.size} device(s), so '
      "no gradients are summed: give ''"
    )


def _with_shardings(shapes, shardings):
  """Returns `shapes` as jax.ShapeDtypeStructs with shardings."""
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    shapes,
    jax.tree.broadcast(shardings, shapes),
  )
