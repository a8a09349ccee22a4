"""The contract of a cell, and the scan over time that every cell has.

A cell defines one `step`. `project` is everything before the recurrence that is
parallel in time, `emit` everything after it; `recur` runs many steps, maybe in
a faster way, and must return the same numbers as `step`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import ad_checkpoint

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.ops import devices
from rnn_jax.ops import fixed_order
from rnn_jax.ops import precision
from rnn_jax.ops import remat_scan
from rnn_jax.ops import remat_schedules

PyTree = Any
KEPT = 'recurrence'  # name of the recurrence's outputs, which remat may save
PROJECTED = 'projection'  # name of the outputs of `project`
SIGHTS = ('past', 'row')  # the steps that one step of an attention sees


@dataclasses.dataclass(frozen=True)
class Plan:
  """How a model is computed. The numbers don't depend on it."""

  impl: str = 'auto'  # one of the cell's; 'scan' for cells without others
  chunk_length: int | None = None  # steps between stored states
  remat_every: int = 0  # steps between stored states under 'scan'; 0: store all
  remat_schedule: str = 'uniform'  # one of ops.remat_schedules, of such blocks
  remat_kept: int = 0  # states stored at a time under 'binomial'; 0: log2
  # In a remat group, see models/remat.py; 0: no remat. With a pattern of cells,
  # this and the next count periods.
  layers: int = 0
  stored_layers: int = 0  # between two such groups, without remat
  keep: tuple[str, ...] = ()  # names that such a group saves
  offload: bool = False  # whether it saves them in host memory
  fresh: bool = False  # rows have no past and their last state isn't used, so
  # that a cell with a large state can omit it


class Gates(NamedTuple):
  """The gates of a step, for launch.inspect."""

  values: dict[str, jax.Array]  # {name: B..., in [0, 1]}
  loga: jax.Array | None = None  # log of the decay of each state number, B...


@dataclasses.dataclass(frozen=True)
class Config:
  """Base of the cells' options.

  Attributes:
    impls: values of recurrence.impl that the cell has.
    multiplying: those whose matmuls have operands in the format of
      recurrence.operands.
    own_states: whether those besides 'scan' choose the states that they store,
      rather than one in remat.every steps.
    block: longer chunks have a multiple of as many steps.
    excludes: conditions with which the cell isn't available, see
      config/conditions.py.
  """

  impls: ClassVar[tuple[str, ...]] = ('auto', 'scan')
  multiplying: ClassVar[tuple[str, ...]] = ()
  own_states: ClassVar[bool] = False
  block: ClassVar[int] = 1
  excludes: ClassVar[tuple[str, ...]] = ()

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    _check_impl(config, self.available_impls)
    if self.own_states:
      _check_schedule(config)
    if config.recurrence.impl in ('auto', 'chunked'):
      _check_chunks(config, self.block)

  @property
  def available_impls(self) -> tuple[str, ...]:
    """Those of `impls` that work with the options."""
    return self.impls

  def resolve(self, config: config_lib.Config) -> Self:
    """Returns the options, defaults that depend on `config` filled in."""
    del config
    return self

  def of_shard(self, shards: int) -> Self:
    """Returns the options of a device that has 1 / `shards` of the heads."""
    options = {'heads': vars(self)['heads'] // shards}
    return dataclasses.replace(self, **options)

  def _refuse(self, key, remedy):
    errors.refuse(f'cell.{key}', getattr(self, key), remedy)


def impls_of(op_impls: tuple[str, ...]) -> tuple[str, ...]:
  """Returns the impls of a cell that runs an op with these."""
  return tuple(impl for impl in op_impls if impl != 'step')


def _check_impl(config, impls):
  impl = config.recurrence.impl
  if impl not in impls:
    raise errors.InputError(
      f'recurrence.impl={impl!r}: model.cell={config.model.cell!r} has {impls}'
    )


def _check_schedule(config):
  name, impl = config.remat.schedule, config.recurrence.impl
  if name != 'uniform' and impl != 'scan':
    raise errors.InputError(
      f'remat.schedule={name!r}: model.cell={config.model.cell!r} under '
      f"recurrence.impl={impl!r} chooses its own stored states: use 'scan', or "
      "remat.schedule='uniform'"
    )


def _check_chunks(config, block):
  lengths = {
    'remat.every': config.remat.every,
    'recurrence.chunk_length': config.recurrence.chunk_length,
  }
  for key, steps in lengths.items():
    if isinstance(steps, int) and steps > block and steps % block:
      errors.refuse(
        key,
        steps,
        f'give up to {block} or a multiple of it, or use '
        "recurrence.impl='scan'",
      )


def check_shards(config: config_lib.Config) -> None:
  """Checks that a cell that stores one state in remat.every has whole rows.

  Raises:
    InputError: rows are sharded.
  """
  if config.mesh.sequence != 1 and config.remat.every:
    raise errors.InputError(
      f'remat.every={config.remat.every!r}: with mesh.sequence='
      f'{config.mesh.sequence} model.cell={config.model.cell!r} stores all '
      'states: give 0'
    )


def check_channels(config: config_lib.Config, options: Any) -> None:
  """Checks that devices can share the channels, options.inner_width, evenly.

  Raises:
    InputError: mesh.tensor doesn't divide them.
  """
  width, shards = options.resolve(config).inner_width, config.mesh.tensor
  if shards > 1 and width % shards:
    raise errors.InputError(
      f'mesh.tensor={shards}: it must divide the {width} channels of '
      f'cell.inner_width={options.inner_width}'
    )


def check_inputs(config: config_lib.Config) -> None:
  """Checks that all layers of a cell that stores inputs read the same width.

  Raises:
    InputError: the first layer reads another.
  """
  model = config.model
  if model.embedding_width not in (0, model.width):
    raise errors.InputError(
      f'model.embedding_width={model.embedding_width}: model.cell='
      f'{model.cell!r} stores inputs of one width: give model.width='
      f'{model.width}, or 0'
    )


def check_window(window: int, config: config_lib.Config) -> None:
  """Checks the option `window` of a cell whose state has past steps.

  Raises:
    InputError: no step of a row reaches as far.
  """
  data = config.data
  # A carried state reaches back beyond its row.
  if window > data.length and not data.carry_state:
    errors.refuse(
      'cell.window',
      window,
      f'above data.length={data.length}: give 0 for all of a row',
    )


def check_sight(sees: str, config: config_lib.Config) -> None:
  """Checks the option `sees` of a cell whose steps may see all of their row.

  Raises:
    InputError: it isn't one of SIGHTS, or a task would see its targets.
  """
  if sees not in SIGHTS:
    raise errors.InputError(f'cell.sees={sees!r}: choose one of {SIGHTS}')
  if sees == 'row' and config.model.bidirectional:
    raise errors.InputError(
      "model.bidirectional=True: with cell.sees='row' a step sees all of its "
      'row: give False'
    )
  if sees == 'row' and not config.task.reads_images:
    raise errors.InputError(
      f"cell.sees='row': rows of task.name={config.task.name!r} have padding, "
      "and later steps are targets: give 'past', or use 'image_classification'"
    )


def check_one_document(starts_BxL: jax.Array | None) -> None:
  """Checks that a row is one document, where a step sees all of it.

  Raises:
    ValueError: `starts_BxL` is given.
  """
  if starts_BxL is not None:
    raise ValueError(
      "starts_BxL with sees='row', which takes one document per row: give None"
    )


class Cell(nn.Module):
  """Base of all cells. State leaves have the batch on axis 0.

  They are float32, but for the matrices of recurrences under a policy whose
  `states` are 'bfloat16'.

  A cell's file has LOGICAL_AXES, the logical axes of each parameter by path, as
  in {'output/kernel': 'HxD'} (see shapes.py). Where 'H' is among them,
  the heads can be sharded: each device then runs a cell with fewer
  `config.heads`, and the outputs are summed over devices.

  Attributes:
    config: the options, an instance of the cell's own Config class.
    width: D of the output.
    plan: how to run over time.
    policy: number formats.
    inputs: D of the input, where it differs from `width`; 0: it doesn't.
  """

  config: Any
  width: int
  plan: Plan = Plan()
  policy: precision.Policy = precision.POLICIES['float32']
  inputs: int = 0

  def __init_subclass__(cls, **options):
    # Flax would run `setup` first, which needs parameters.
    for name in ('init_state', 'state_axes', 'beside'):
      if name in vars(cls):
        setattr(cls, name, nn.nowrap(vars(cls)[name]))
    super().__init_subclass__(**options)

  @nn.nowrap
  def init_state(self, B: int) -> PyTree:
    """Returns the state before a document: zeros, for B rows.

    Needs no parameters.
    """
    raise NotImplementedError

  @nn.nowrap
  def state_axes(self) -> PyTree:
    """Returns the logical axes of the state, a tree like it.

    Needs no parameters. By default only rows are sharded.
    """
    return jax.tree.map(
      lambda x: 'B', jax.eval_shape(lambda: self.init_state(1))
    )

  @nn.nowrap
  def beside(self, B: int, L: int) -> PyTree | None:
    """Returns what goes from layer to layer next to x, before the first.

    It is a pytree of BxL... arrays, of zeros; None: nothing. The cell then
    takes (x, this) in place of x, and returns (y, this) in place of y.
    """
    del B, L
    return None

  def dense(self, width: int, **options: Any) -> nn.Dense:
    """Returns an nn.Dense of a width under the policy."""
    options = {'dot_general': self.policy.dot_general} | options
    return nn.Dense(width, dtype=self.policy.activations, **options)

  def xavier(
    self, width: int, biased: bool = False, **options: Any
  ) -> nn.Dense:
    """Returns `dense` of a kernel within Xavier's limits."""
    init = nn.initializers.xavier_uniform()
    return self.dense(width, use_bias=biased, kernel_init=init, **options)

  def project(self, x_BxLxD: jax.Array) -> PyTree:
    """Returns the inputs of the recurrence, a pytree of BxL... arrays."""
    raise NotImplementedError

  def step(self, state: PyTree, u: PyTree) -> tuple[PyTree, PyTree]:
    """Runs one step, for `u` without a time axis. Returns (state, y)."""
    raise NotImplementedError

  def gates(self, state: PyTree, u: PyTree) -> Gates | None:
    """Returns the Gates of one step, or None; arguments as of `step`."""
    del state, u
    return None

  def units(self, u: PyTree) -> jax.Array | None:
    """Returns the hidden units in the result of `project`, or None.

    They are BxL..., 0 where inactive; for launch.inspect, as `gates`.
    """
    del u
    return None

  def emit(self, y: PyTree) -> jax.Array:
    """Returns the cell's output BxLxD, from that of the recurrence."""
    return y

  def recur(
    self, state: PyTree, u: PyTree, starts_BxL: jax.Array | None
  ) -> tuple[PyTree, PyTree]:
    """Runs `step` over time. Returns (state, y with a time axis).

    `starts_BxL` is nonzero where a document begins, before which the state is
    zero; None if no document begins.
    """
    return scan_steps(self, state, u, starts_BxL)

  def __call__(
    self, state: PyTree, x_BxLxD: PyTree, starts_BxL: jax.Array | None = None
  ) -> tuple[PyTree, PyTree]:
    """Runs `project`, `recur` and `emit`; L = 1 runs `step`.

    Args:
      state: before the first step.
      x_BxLxD: the inputs; a pair with what `beside` declares, if it does.
      starts_BxL: nonzero where a document begins, or None.

    Returns:
      (state, y_BxLxD), y in such a pair.
    """
    u = self.project(x_BxLxD)
    length = jax.tree.leaves(x_BxLxD)[0].shape[1]
    if length == 1 and devices.current().time_shards == 1:
      state, y = reset_and_step(self, state, *_first((u, starts_BxL)))
      y = jax.tree.map(lambda y: y[:, None], y)
    else:
      u = _name(u, PROJECTED)
      state, y = self.recur(state, u, starts_BxL)
      y = _name(y, KEPT)
    return state, self.emit(y)


class ParallelCell(Cell):
  """A cell that runs any number of steps at once, `advance`.

  recurrence.impl='scan' is one step in a loop, as for every cell. The output is
  `output` of y, with dropout by `drop`; `setup` makes both.
  """

  def advance(
    self, state: PyTree, u: PyTree, starts_BxL: jax.Array | None, impl: str
  ) -> tuple[PyTree, PyTree]:
    """Runs the steps of `u`. Returns (state, y with a time axis).

    Args:
      state: before the first step.
      u: the result of `project`.
      starts_BxL: nonzero where a document begins, or None.
      impl: one of the config's, or 'step' for a single step, or 'auto' if
        its sums have a fixed order (ops/fixed_order).
    """
    raise NotImplementedError

  def step(self, state: PyTree, u: PyTree) -> tuple[PyTree, PyTree]:
    u = jax.tree.map(lambda x: x[:, None], u)
    impl = 'auto' if fixed_order.is_active() else 'step'
    state, y = self.advance(state, u, None, impl)
    return state, _first(y)

  def recur(
    self, state: PyTree, u: PyTree, starts_BxL: jax.Array | None
  ) -> tuple[PyTree, PyTree]:
    # Without a state, as with sees='row', there are no steps to scan.
    if self.plan.impl == 'scan' and state is not None:
      return scan_steps(self, state, u, starts_BxL)
    if self.config.own_states:
      return self.advance(state, u, starts_BxL, self.plan.impl)
    return in_segments(_advance, self, state, (u, starts_BxL))

  def emit(self, y: PyTree) -> PyTree:
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))


def _advance(cell, state, inputs):
  return cell.advance(state, *inputs, cell.plan.impl)


def _name(tree, name):
  return jax.tree.map(lambda x: ad_checkpoint.checkpoint_name(x, name), tree)


def reset_and_step(
  cell: Cell, state: PyTree, u: PyTree, starts_B: jax.Array | None
) -> tuple[PyTree, PyTree]:
  """Runs `cell.step`, from zeros where `starts_B` is nonzero."""
  return cell.step(reset(cell, state, starts_B), u)


def reset(cell: Cell, state: PyTree, starts_B: jax.Array | None) -> PyTree:
  """Returns the state, zeros where `starts_B` is nonzero; None resets none."""
  if starts_B is None:
    return state
  fresh = cell.init_state(starts_B.shape[0])
  return jax.tree.map(
    lambda zero, old: jnp.where(_broadcast(starts_B, old) != 0, zero, old),
    fresh,
    state,
  )


def scan_steps(
  cell: Cell, state: PyTree, u: PyTree, starts_BxL: jax.Array | None
) -> tuple[PyTree, PyTree]:
  """Runs `nn.scan` over steps, storing the state every `plan.remat_every`.

  Returns:
    (state, y with a time axis).

  Raises:
    NotImplementedError: the row is sharded over devices.
  """
  if (shards := devices.current().time_shards) > 1:
    raise NotImplementedError(
      "recurrence.impl='scan' steps through a row on one device, and rows are "
      f"sharded over the {shards} devices of the mesh's axis 'sequence': use "
      "'auto', or mesh.sequence=1"
    )
  return in_segments(_scan, cell, state, (u, starts_BxL))


def in_segments(
  run: Callable[..., tuple[PyTree, PyTree]],
  cell: Cell,
  state: PyTree,
  inputs: tuple[PyTree, jax.Array | None],
) -> tuple[PyTree, PyTree]:
  """Runs `run(cell, state, inputs)`, storing only some states.

  One state in `plan.remat_every` steps is stored, or fewer as
  `plan.remat_schedule` says; the backward pass recomputes the steps between.

  Args:
    run: (cell, state, inputs) -> (state, y), for any number of steps.
    cell: a Cell.
    state: before the first step.
    inputs: (the result of `project`, starts_BxL or None).

  Returns:
    (state, y with a time axis).
  """
  leaves = jax.tree.leaves(inputs)
  length, every = leaves[0].shape[1], cell.plan.remat_every
  if not every or every >= length:
    return run(cell, state, inputs)
  whole = length // every * every
  head = jax.tree.map(
    lambda x: x[:, :whole].reshape(x.shape[0], -1, every, *x.shape[2:]),
    inputs,
  )
  if cell.plan.remat_schedule == 'uniform' or cell.is_initializing():
    state, y = _uniform(run, cell, state, head)
  else:
    state, y = _scheduled(run, cell, state, head)
  y = jax.tree.map(lambda y: y.reshape(y.shape[0], whole, *y.shape[3:]), y)
  if whole == length:
    return state, y
  tail = jax.tree.map(lambda x: x[:, whole:], inputs)
  state, rest = run(cell, state, tail)
  return state, jax.tree.map(lambda *y: jnp.concatenate(y, 1), y, rest)


def _uniform(run, cell, state, blocks):
  """Runs blocks on axis 1; the state before each is stored."""
  chunks = nn.scan(
    nn.remat(run, prevent_cse=False),
    variable_broadcast='params',
    split_rngs={'params': False},
    in_axes=1,
    out_axes=1,
    check_constancy_invariants=cell.has_rng('params'),  # see models/stack.py
  )
  return chunks(cell, state, blocks)


def _scheduled(run, cell, state, blocks):
  """Runs blocks on axis 1; the plan's schedule says which states are stored."""
  apart = cell.clone(parent=None, name=None)

  def block(params, state, u, starts):
    return nn.apply(run, apart)({'params': params}, state, (u, starts))

  blocks = jax.tree.map(lambda x: x.swapaxes(0, 1), blocks)
  count = jax.tree.leaves(blocks)[0].shape[0]
  schedule = remat_schedules.make(
    cell.plan.remat_schedule, count, cell.plan.remat_kept
  )
  params = cell.variables.get('params', {})
  state, y = remat_scan.scan(block, params, state, blocks, schedule)
  return state, jax.tree.map(lambda y: y.swapaxes(0, 1), y)


def _scan(cell, state, inputs):
  run = nn.scan(
    lambda cell, state, inputs: reset_and_step(cell, state, *inputs),
    variable_broadcast='params',
    split_rngs={'params': False},
    in_axes=1,
    out_axes=1,
    check_constancy_invariants=cell.has_rng('params'),  # see models/stack.py
  )
  return run(cell, state, inputs)


def _first(tree):
  return jax.tree.map(lambda x: x[:, 0], tree)


def _broadcast(flags_B, like):
  return flags_B.reshape(-1, *[1] * (like.ndim - 1))
