"""The train states of a run: new ones, and where their arrays are on its mesh.

Here a task, its optimizer and a mesh become a TrainState. Nothing here knows
what a step does with it.
"""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.parallel import compression
from rnn_jax.parallel import placement as placement_lib
from rnn_jax.parallel import rules
from rnn_jax.training import loss_scale
from rnn_jax.training import optimizer as optimizer_lib
from rnn_jax.training import schedule as schedule_lib
from rnn_jax.training import train_state

PyTree = Any
TrainState = train_state.TrainState


class States:
  """Makes the train states of a run.

  Attributes:
    placement: the shardings of the parameters and of what goes with them.
    schedule: the learning rate by step.
    optimizer: of the parameters.
    carry_axes: logical axes of the recurrent state; None: it isn't carried from
      batch to batch.
    carry_specs: its PartitionSpecs, or None.
    shardings: of a state between steps.
  """

  def __init__(
    self, task: Any, config: config_lib.Config, mesh: jax.sharding.Mesh
  ) -> None:
    """Prepares the states; nothing is compiled before one is made.

    Raises:
      InputError: the mesh doesn't fit the model, patterns of the section
        `optimizer` match no parameter, or there are no gradients to compress.
    """
    _check_compression(config.mesh.compression, mesh)
    self._task, self._train = task, config.train
    self._compressed = bool(config.mesh.compression)
    # Jitted so that its trace serves the shapes and the initial state.
    self._init_parameters = jax.jit(task.init_parameters)
    shapes = jax.eval_shape(lambda: self._init_parameters(jax.random.key(0)))
    with _named_cell(config.model):
      self.placement = placement_lib.Placement(
        mesh, config.mesh, shapes, task.logical_axes()
      )
    self.schedule = schedule_lib.make(config)
    self.optimizer = optimizer_lib.of_model(
      config.optimizer,
      config.adapters,
      self.schedule.rate,
      # Not the jitted function: the calls of Dense layers must be traced.
      task.init_parameters,
      self.placement,
    )
    carries = config.data.carry_state
    self.carry_axes = task.state_axes() if carries else None
    self.carry_specs = self.placement.carry_specs(self.carry_axes)
    self._on_devices = self.shardings = self._find_shardings()
    if config.optimizer.offload:
      self.shardings = _offloaded(self._on_devices)
    self._init = jax.jit(
      self._new, static_argnums=0, out_shardings=self.shardings
    )

  def init(self, rows: int) -> TrainState:
    """Returns a new train state on the mesh, with a carry of `rows` rows.

    Its parameters and its random numbers are those of the config's seeds.
    """
    return self._init(rows)

  def init_from_data(
    self, state: TrainState, corpus: corpus_lib.Corpus
  ) -> TrainState:
    """Returns a new train state whose parameters may depend on a corpus."""
    params = self._task.init_from_data(state.params, corpus)
    if params is state.params:
      return state
    shardings = self.placement.shardings('parameters')
    return self.init_from(state, jax.device_put(params, shardings))

  def init_from(self, state: TrainState, params: PyTree) -> TrainState:
    """Returns a new train state that starts from these parameters."""
    state = state.replace(params=params)
    if not self.optimizer.point:
      return state
    # The optimizer's state holds parameters as well.
    init = jax.jit(
      self.optimizer.tx.init, out_shardings=self.shardings.opt_state
    )
    return state.replace(opt_state=init(params))

  def init_carry(self, rows: int) -> PyTree:
    """Returns the carry before an evaluation; None if none is carried."""
    if self.carry_axes is None:
      return None
    return jax.jit(
      lambda: self._task.init_state(rows), out_shardings=self.shardings.carry
    )()

  def rescale(self, state: TrainState, evaluations: int) -> TrainState:
    """Returns the state with the learning rate after an evaluation.

    Args:
      state: a train state.
      evaluations: the number of evaluations since the best one.
    """
    if self.schedule.rescale is None:
      return state
    step, scale = jax.device_get((state.step, state.rate_scale))
    scale = self.schedule.rescale(int(step), float(scale), evaluations)
    placed = jax.device_put(np.float32(scale), self.placement.replicated)
    return state.replace(rate_scale=placed)

  def like(self, rows: int = 1) -> TrainState:
    """Returns the shapes, dtypes and shardings of a state of so many rows."""
    shapes = jax.eval_shape(lambda: self._new(rows))
    return with_shardings(shapes, self.shardings)

  def place(self, state: TrainState) -> TrainState:
    """Returns a step's new state, placed as the old one was."""
    state = jax.lax.with_sharding_constraint(state, self._on_devices)
    opt_state = jax.device_put(state.opt_state, self.shardings.opt_state)
    return state.replace(opt_state=opt_state)

  def _find_shardings(self):
    """Returns the shardings of a state that is on the devices whole."""
    place = self.placement
    whole = place.replicated
    return TrainState(
      params=place.shardings('parameters'),
      opt_state=place.optimizer_shardings(
        jax.eval_shape(self.optimizer.tx.init, place.shapes)
      ),
      carry=jax.tree.map(
        lambda spec: rules.sharding(place.mesh, spec), self.carry_specs
      ),
      loss_scale=whole,
      step=whole,
      skipped=whole,
      rate_scale=whole,
      key=whole,
      error_feedback=(
        place.shardings('error_feedback') if self._compressed else None
      ),
    )

  def _new(self, rows):
    weights_key = jax.random.key(self._train.seed_of_weights)
    noise_key = jax.random.key(self._train.seed)
    params = self._init_parameters(jax.random.fold_in(weights_key, 0))
    copies = self.placement.mesh.shape['data']
    return TrainState(
      params=params,
      opt_state=self.optimizer.tx.init(params),
      carry=None if self.carry_axes is None else self._task.init_state(rows),
      loss_scale=loss_scale.init(self._train),
      step=jnp.zeros((), jnp.int32),
      skipped=jnp.zeros((), jnp.int32),
      rate_scale=jnp.ones((), jnp.float32),
      key=jax.random.key_data(jax.random.fold_in(noise_key, 1)),
      error_feedback=(
        compression.init(params, copies) if self._compressed else None
      ),
    )


def with_shardings(shapes: PyTree, shardings: PyTree) -> PyTree:
  """Returns `shapes` as jax.ShapeDtypeStructs with shardings, a prefix tree."""
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    shapes,
    jax.tree.broadcast(shardings, shapes),
  )


def _offloaded(shardings):
  on_host = jax.tree.map(placement_lib.to_host, shardings.opt_state)
  return shardings.replace(opt_state=on_host)


def _check_compression(kind, mesh):
  if kind and mesh.shape['data'] == 1:
    raise errors.InputError(
      f'mesh.compression={kind!r}: mesh.data is 1 on {mesh.size} device(s), so '
      "no gradients are summed: give ''"
    )


@contextlib.contextmanager
def _named_cell(model):
  """Adds the cell's name to an InputError about one of its parameters."""
  try:
    yield
  except errors.InputError as error:
    if 'cell/' not in str(error):
      raise
    named = (
      f'model.cells={model.cells}'
      if model.cells
      else f'model.cell={model.cell!r}'
    )
    raise errors.InputError(f'{named}: {error}') from error
