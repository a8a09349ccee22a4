"""One step of training and one of evaluation, jitted over a mesh.

The train state is a dict: `params`, `optimizer`, `carry` (the recurrent state
that goes from batch to batch, or None), `loss_scale` (or None), `step`,
`skipped` (non-finite steps in a row, but for those that lowered the loss
scale), `rate_scale` (what evaluations have made of the schedule's rate), `key`
(data of the PRNG key that all others are folded from) and, where gradients are
compressed, `residual` (what each device has not sent of them yet).
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import compiler
from rnn_jax.parallel import compression
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import placement
from rnn_jax.parallel import rules
from rnn_jax.training import loss_scale
from rnn_jax.training import offload
from rnn_jax.training import optimizer as optimizer_lib
from rnn_jax.training import passes as passes_lib
from rnn_jax.training import pruning
from rnn_jax.training import schedule as schedule_lib


def from_config(config, tokenizer, devices=None):
  """The steps of a Config, over its mesh of `devices`, of all if None.

  Raises:
    InputError: the mesh fits neither the devices nor the model, or there is a
      teacher that can't teach it.
  """
  mesh = mesh_lib.make(config.mesh, devices)
  if config.distillation.teacher:
    from rnn_jax.training import distillation  # it restores a checkpoint

    return Steps(distillation.make(config, tokenizer), config, mesh)
  tasks = config_lib.load('tasks', config.task.name, 'task.name')
  return Steps(tasks.make(config, tokenizer), config, mesh)


class Steps:
  """The compiled programs of a run, one for each batch shape.

  Attributes:
    task: what is trained.
    mesh: of the devices.
    placement: where parameters lie, placement.Placement.
    batch_sharding: where a batch lies.
    traces: how many programs have been traced, and so compiled.
    follows_evaluations: whether they change the learning rate.
  """

  def __init__(self, task, config, mesh):
    self.task = task
    self._train_config = config.train
    self._schedule = schedule_lib.make(config)
    self.follows_evaluations = self._schedule.rescale is not None
    self._offload = config.optimizer.offload
    self._pruning = config.pruning
    self._compression = config.mesh.compression
    self._carries = config.data.carry_state
    self.mesh = mesh
    # Jitted so that its trace serves the shapes and the initial state.
    self._init_parameters = jax.jit(task.init_parameters)
    self.placement = placement.Placement(
      mesh,
      rules.parse(config.mesh.rules, config.mesh.zero),
      jax.eval_shape(lambda: self._init_parameters(jax.random.key(0))),
      task.letters(),
    )
    optimizer_lib.check_names(config, self.placement.shapes)
    # By tracing, and so not by a function that was traced already.
    factors = optimizer_lib.factors_of(
      config, task.init_parameters, self.placement.shapes
    )
    self._optimizer = optimizer_lib.make(
      config, self._schedule.rate, self.placement.stacked, factors
    )
    self._point = optimizer_lib.point_of(config)
    self._frozen = optimizer_lib.frozen(config, self.placement.shapes)
    if self._compression and mesh.shape['data'] == 1:
      raise errors.InputError(
        f'mesh.compression={self._compression!r}: mesh.data is 1 on '
        f"{mesh.size} device(s) and sums nothing: give ''"
      )
    self._passes = passes_lib.Passes(task, config, self.placement, factors)
    self.batch_sharding = jax.tree.map(
      lambda spec: rules.sharding(mesh, spec), passes_lib.BATCH_SPEC
    )
    # Virtual devices share one pool of threads: two steps in flight can each
    # hold threads that the other's all-reduce waits for.
    self._one_at_a_time = mesh.size > 1 and jax.default_backend() == 'cpu'
    self.traces = 0
    options = compiler.options(config.train.compiler, jax.default_backend())
    self._train = jax.jit(
      self._train_step, donate_argnums=0, compiler_options=options
    )
    self._look = jax.jit(self._look_step, compiler_options=options)
    self._evaluate = jax.jit(
      self._evaluate_step, donate_argnums=1, compiler_options=options
    )

  def init(self, seed, rows):
    """A new train state on the mesh; `rows` carry states, if any do."""
    shardings = self._state_shardings()
    return jax.jit(
      lambda: self._new_state(seed, rows), out_shardings=shardings
    )()

  def prime(self, state, corpus):
    """Returns a new train state as it begins on a corpus."""
    params = self.task.prime(state['params'], corpus)
    if params is state['params']:
      return state
    shardings = self.placement.shardings('parameters')
    return self.begin_with(state, jax.device_put(params, shardings))

  def begin_with(self, state, params):
    """Returns a new train state that begins with these parameters."""
    state = state | {'params': params}
    if not self._point:
      return state
    # Its state holds parameters as well.
    begin = jax.jit(
      self._optimizer.init,
      out_shardings=self._state_shardings()['optimizer'],
    )
    return state | {'optimizer': begin(params)}

  def rescale(self, state, evaluations):
    """Returns the state with the rate that follows on an evaluation, so many
    `evaluations` behind the best one."""
    if not self.follows_evaluations:
      return state
    step, scale = jax.device_get((state['step'], state['rate_scale']))
    scale = self._schedule.rescale(int(step), float(scale), evaluations)
    placed = jax.device_put(np.float32(scale), self.placement.whole)
    return state | {'rate_scale': placed}

  def parameters_like(self):
    """Shapes, dtypes and sharding of the parameters."""
    return self.parts_like(('params',))['params']

  def parts_like(self, names):
    """The same of those entries of a train state, {name: part}.

    Of the carry it is that of one row.
    """
    state = jax.eval_shape(lambda: self._new_state(0, 1))
    shardings = self._state_shardings()
    return {name: _placed(state[name], shardings[name]) for name in names}

  def look(self, state, batch):
    """Returns (gradients of the mean loss, updates of the parameters, sums) of
    a training step that isn't taken; the carry is of the batch's rows."""
    return self._settle(self._look(state, batch))

  def train(self, state, batch):
    """Returns (state, metrics); `state` is given away."""
    return self._settle(self._train(state, batch))

  def evaluate(self, params, carry, batch):
    """Returns (carry, sums); `carry` is given away."""
    return self._settle(self._evaluate(params, carry, batch))

  def init_carry(self, rows):
    """The carry before a pass; None where states are not carried."""
    if not self._carries:
      return None
    return jax.jit(
      lambda: self.task.init_state(rows), out_shardings=self._carry_shardings()
    )()

  def compile_train(self, rows, length):
    """The program of a training step of that shape, compiled anew."""
    return self.trace_train(rows, length).lower().compile()

  def trace_train(self, rows, length):
    """The same as traced, a jax.stages.Traced: its jaxpr, to be lowered."""
    state = jax.eval_shape(lambda: self._new_state(0, rows))
    state = _placed(state, self._state_shardings())
    return self._train.trace(state, self._batch_like(rows, length))

  def trace_evaluate(self, rows, length):
    """The same of an evaluation step of that shape."""
    carry = jax.eval_shape(lambda: self.init_carry(rows))
    if carry is not None:
      carry = _placed(carry, self._carry_shardings())
    batch = self._batch_like(rows, length)
    return self._evaluate.trace(self.parameters_like(), carry, batch)

  def _batch_like(self, rows, length):
    batch = jax.tree.map(  # of one row: there may be more than memory holds
      lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype),
      self.task.blank_batch(1, length),
    )
    return _placed(batch, self.batch_sharding)

  def _settle(self, result):
    return jax.block_until_ready(result) if self._one_at_a_time else result

  def _state_shardings(self, offloaded=True):
    whole = self.placement.whole
    return {
      'params': self.placement.shardings('parameters'),
      'optimizer': self._optimizer_shardings(offloaded and self._offload),
      'carry': self._carry_shardings() if self._carries else whole,
      'loss_scale': whole,
      'step': whole,
      'skipped': whole,
      'rate_scale': whole,
      'key': whole,
      **self._residual(lambda: self.placement.shardings('residual')),
    }

  def _residual(self, make):
    """A part of the train state, if gradients are compressed."""
    return {'residual': make()} if self._compression else {}

  def _optimizer_shardings(self, offloaded):
    state = jax.eval_shape(self._optimizer.init, self.placement.shapes)
    shardings = self.placement.of_optimizer(state)
    if not offloaded:
      return shardings
    return jax.tree.map(offload.to_host, shardings)

  def _carry_shardings(self):
    return jax.tree.map(
      lambda spec: rules.sharding(self.mesh, spec), self._passes.carry_specs
    )

  def _new_state(self, seed, rows):
    key = jax.random.key(seed)
    params = self._init_parameters(jax.random.fold_in(key, 0))
    return {
      'params': params,
      'optimizer': self._optimizer.init(params),
      'carry': self.task.init_state(rows) if self._carries else None,
      'loss_scale': loss_scale.init(self._train_config),
      'step': jnp.zeros((), jnp.int32),
      'skipped': jnp.zeros((), jnp.int32),
      'rate_scale': jnp.ones((), jnp.float32),
      'key': jax.random.key_data(jax.random.fold_in(key, 1)),
      **self._residual(
        lambda: compression.init(params, self.mesh.shape['data'])
      ),
    }

  def _train_step(self, state, batch):
    self.traces += 1
    key = jax.random.wrap_key_data(state['key'])
    key = jax.random.fold_in(key, state['step'])
    residual, found, sums, carry = self._passes.gradients(state, batch, key)
    gradients, _ = found
    norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(sums['objective']) & jnp.isfinite(norm)
    scale, lowered = loss_scale.update(
      state['loss_scale'], finite, self._train_config.loss_scale_steps
    )
    state = state | {'optimizer': offload.to_device(state['optimizer'])}
    new = self._update(state, *found) | {'carry': carry}
    new |= self._residual(lambda: residual)
    old = {name: state[name] for name in new}
    kept = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)
    failed = jnp.where(lowered, 0, 1)
    skipped = jnp.where(finite, 0, state['skipped'] + failed)
    kept |= {
      'loss_scale': scale,
      'step': state['step'] + 1,
      'skipped': skipped,
      'rate_scale': state['rate_scale'],
      'key': state['key'],
    }
    on_device = self._state_shardings(offloaded=False)
    kept = jax.lax.with_sharding_constraint(kept, on_device)
    kept['optimizer'] = jax.device_put(
      kept['optimizer'], self._optimizer_shardings(self._offload)
    )
    return kept, {
      'sums': sums,
      'finite': finite,
      'real_tokens': _real_tokens(batch),
      'gradient_norm': norm,
      'learning_rate': state['rate_scale'] * self._schedule.rate(state['step']),
      'skipped': skipped,
      **loss_scale.metrics(state['loss_scale']),
    }

  def _update(self, state, gradients, factors):
    """The parameters and the optimizer's state behind the gradients."""
    updates, optimizer = self._updates(state, gradients, factors)
    params = optax.apply_updates(state['params'], updates)
    if self._pruning.sparsity:
      params = pruning.update(
        state['step'], state['params'], params, self._pruning
      )
    params = jax.tree.map(  # to the bit, -0 and what pruning zeroed included
      lambda held, old, new: old if held else new,
      self._frozen,
      state['params'],
      params,
    )
    return {'params': params, 'optimizer': optimizer}

  def _updates(self, state, gradients, factors):
    """What is added to the parameters, and the optimizer's state behind it."""
    updates, optimizer = self._optimizer.update(
      gradients, state['optimizer'], state['params'], factors=factors
    )
    updates = jax.tree.map(lambda x: state['rate_scale'] * x, updates)
    updates = jax.tree.map(
      lambda held, x: jnp.zeros_like(x) if held else x, self._frozen, updates
    )
    return updates, optimizer

  def _evaluate_step(self, params, carry, batch):
    self.traces += 1
    return self._passes.sums(params, carry, batch)

  def _look_step(self, state, batch):
    self.traces += 1
    key = jax.random.wrap_key_data(state['key'])
    key = jax.random.fold_in(key, state['step'])
    _, found, sums, _ = self._passes.gradients(state, batch, key)
    state = state | {'optimizer': offload.to_device(state['optimizer'])}
    updates, _ = self._updates(state, *found)
    return found[0], updates, sums


def _placed(shapes, shardings):
  """`shapes`, as jax.ShapeDtypeStructs that know where they lie."""
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    shapes,
    jax.tree.broadcast(shardings, shapes),
  )


def _real_tokens(batch):
  """How many steps are no padding: each example ends with a target."""
  steps_L = jnp.arange(1, batch.weights_BxL.shape[1] + 1)
  return jnp.sum(jnp.max((batch.weights_BxL > 0) * steps_L[None], 1))
