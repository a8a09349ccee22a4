"""The contract of a cell, and the scan over time that any cell gets with it.

A cell says what one step does. `project` is all that is parallel in time
before the recurrence, `emit` all that is parallel behind it; `step` is the
definition in between, and `recur` a faster way of running many steps that
must return the same numbers.
"""

import dataclasses
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import ad_checkpoint

from rnn_jax import errors
from rnn_jax.ops import precision
from rnn_jax.ops import remat_scan
from rnn_jax.ops import remat_schedules
from rnn_jax.parallel import axes
from rnn_jax.parallel import rules as rules_lib

KEPT = 'recurrence'  # name of what a remat over segments of time keeps
PROJECTED = 'projection'  # name of what `project` returns
SIGHTS = ('past', 'row')  # what a step of an attention sees


@dataclasses.dataclass(frozen=True)
class Plan:
  """How a model is computed. The numbers do not depend on it."""

  impl: str = 'auto'  # one of the cell's; 'scan' for cells without others
  chunk_length: int | None = None  # steps between kept states
  remat_every: int = 0  # steps between kept states under 'scan'; 0: keep all
  remat_schedule: str = 'uniform'  # one of ops.remat_schedules, of such blocks
  remat_kept: int = 0  # states kept at a time under 'binomial'; 0: log2
  layers: int = 0  # see models/remat.py; 0: none
  keep: tuple[str, ...] = ()
  offload: bool = False
  rules: rules_lib.Rules = rules_lib.Rules()  # how devices share parameters
  micro_batches: int = 0  # of a pipeline over layers; 0: as many as stages
  fresh: bool = False  # rows begin with no past, and leave none: a cell with a
  # large state can do without it


class Gates(NamedTuple):
  """What a step's gates let through; what launch.inspect looks at."""

  values: dict  # {name: B..., in [0, 1]}
  loga: Any = None  # log of the share of each state that a step keeps, B...


def check_impl(config, impls):
  """Checks that recurrence.impl is among those that a cell has.

  Raises:
    InputError: it is not; the message has the cell and its `impls`.
  """
  impl = config.recurrence.impl
  if impl not in impls:
    raise errors.InputError(
      f'recurrence.impl={impl!r}: model.cell={config.model.cell!r} has {impls}'
    )


def check_steps(config):
  """Checks that a schedule of kept states has steps to go over.

  Raises:
    InputError: remat.schedule is not 'uniform', and the recurrence not 'scan'.
  """
  name, impl = config.remat.schedule, config.recurrence.impl
  if name != 'uniform' and impl != 'scan':
    raise errors.InputError(
      f'remat.schedule={name!r}: model.cell={config.model.cell!r} under '
      f"recurrence.impl={impl!r} keeps states of its own choice: use 'scan', "
      "or remat.schedule='uniform'"
    )


def check_sight(sees, config):
  """Checks the option `sees` of a cell whose steps may see all of their row.

  Raises:
    InputError: it is none of SIGHTS, or would show a task what it predicts.
  """
  if sees not in SIGHTS:
    raise errors.InputError(f'cell.sees={sees!r}: choose one of {SIGHTS}')
  if sees == 'row' and config.task.name != 'image_classification':
    raise errors.InputError(
      f"cell.sees='row': rows of task.name={config.task.name!r} hold padding, "
      "and what comes later: give 'past'; 'image_classification' has whole rows"
    )


def check_one_document(starts_BxL):
  """Raises ValueError where a step sees its row and rows hold documents."""
  if starts_BxL is not None:
    raise ValueError(
      "starts_BxL with sees='row', where a row is one document: give None"
    )


class Cell(nn.Module):
  """Base of all cells. State leaves are float32 with the batch in front.

  A cell's file has LETTERS, the letters of each parameter by its path, as in
  {'output/kernel': 'HxD'} (see parallel/shares.py). Where 'H' is among them,
  devices can share the heads: each then runs a cell with fewer `config.heads`,
  and its outputs are added up.

  Attributes:
    config: the options, an instance of the cell's own Config class.
    width: D of the output.
    plan: how to run over time.
    policy: number formats.
  """

  config: object
  width: int
  plan: Plan = Plan()
  policy: precision.Policy = precision.POLICIES['float32']

  def __init_subclass__(cls, **options):
    # Flax would run `setup` first, and so ask for parameters.
    for name in ('init_state', 'state_letters'):
      if name in vars(cls):
        setattr(cls, name, nn.nowrap(vars(cls)[name]))
    super().__init_subclass__(**options)

  @nn.nowrap
  def init_state(self, B):
    """The state before a document: zeros. Needs no parameters."""
    raise NotImplementedError

  @nn.nowrap
  def state_letters(self):
    """The letters of the state's axes, a tree like it: rows alone are cut."""
    return jax.tree.map(
      lambda x: 'B', jax.eval_shape(lambda: self.init_state(1))
    )

  def project(self, x_BxLxD):
    """What the recurrence reads at each step, a pytree of BxL... arrays."""
    raise NotImplementedError

  def step(self, state, u):
    """One step. `u` has no time axis. Returns (state, y)."""
    raise NotImplementedError

  def gates(self, state, u):
    """The Gates of one step, from what `step` reads; None: it has none."""
    del state, u

  def units(self, u):
    """The hidden units in what `project` returns, BxL..., each 0 where it is at
    rest; None: it has none. For launch.inspect, as `gates`."""
    del u

  def emit(self, y):
    """The cell's output BxLxD from the recurrence's."""
    return y

  def recur(self, state, u, starts_BxL):
    """Runs `step` over time. Returns (state, y with a time axis)."""
    return scan_steps(self, state, u, starts_BxL)

  def __call__(self, state, x_BxLxD, starts_BxL=None):
    """Returns (state, y_BxLxD). L = 1 runs `step`."""
    u = self.project(x_BxLxD)
    if x_BxLxD.shape[1] == 1 and axes.size('sequence') == 1:
      state, y = reset_and_step(self, state, *_first((u, starts_BxL)))
      y = jax.tree.map(lambda y: y[:, None], y)
    else:
      u = _name(u, PROJECTED)
      state, y = self.recur(state, u, starts_BxL)
      y = _name(y, KEPT)
    return state, self.emit(y)


def _name(tree, name):
  return jax.tree.map(lambda x: ad_checkpoint.checkpoint_name(x, name), tree)


def reset_and_step(cell, state, u, starts_B):
  """`cell.step` from the zero state where `starts_B` says so."""
  return cell.step(reset(cell, state, starts_B), u)


def reset(cell, state, starts_B):
  """The state, zero where `starts_B`, if there is one, says so."""
  if starts_B is None:
    return state
  fresh = cell.init_state(starts_B.shape[0])
  return jax.tree.map(
    lambda zero, old: jnp.where(_broadcast(starts_B, old) != 0, zero, old),
    fresh,
    state,
  )


def scan_steps(cell, state, u, starts_BxL):
  """`nn.scan` over steps, keeping the state every `plan.remat_every` steps.

  Raises:
    NotImplementedError: the row is cut into stretches on several devices.
  """
  if (devices := axes.size('sequence')) > 1:
    raise NotImplementedError(
      "recurrence.impl='scan' steps through a row on one device, and rows are "
      f"cut over the {devices} of the mesh's axis 'sequence': use 'auto', or "
      'one device along that axis'
    )
  return in_segments(_scan, cell, state, (u, starts_BxL))


def in_segments(run, cell, state, inputs):
  """`run(cell, state, inputs)`, keeping the state every `plan.remat_every`
  steps, or fewer of these as `plan.remat_schedule` says: what lies between is
  computed again in the backward pass.

  Args:
    run: returns (state, y) of any number of steps.
    cell: a Cell.
    state: before them.
    inputs: (what `project` returns, starts_BxL or None).

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
  """`run` over blocks on axis 1; what enters each is kept."""
  chunks = nn.scan(
    nn.remat(run, prevent_cse=False),
    variable_broadcast='params',
    split_rngs={'params': False},
    in_axes=1,
    out_axes=1,
  )
  return chunks(cell, state, blocks)


def _scheduled(run, cell, state, blocks):
  """Likewise; the plan's schedule says what is kept."""
  apart = cell.clone(parent=None, name=None)

  def block(params, state, u, starts):
    return nn.apply(run, apart)({'params': params}, state, (u, starts))

  in_front = jax.tree.map(lambda x: x.swapaxes(0, 1), blocks)
  count = jax.tree.leaves(in_front)[0].shape[0]
  schedule = remat_schedules.make(
    cell.plan.remat_schedule, count, cell.plan.remat_kept
  )
  params = cell.variables.get('params', {})
  state, y = remat_scan.scan(block, params, state, in_front, schedule)
  return state, jax.tree.map(lambda y: y.swapaxes(0, 1), y)


def _scan(cell, state, inputs):
  run = nn.scan(
    lambda cell, state, inputs: reset_and_step(cell, state, *inputs),
    variable_broadcast='params',
    split_rngs={'params': False},
    in_axes=1,
    out_axes=1,
  )
  return run(cell, state, inputs)


def _first(tree):
  return jax.tree.map(lambda x: x[:, 0], tree)


def _broadcast(flags_B, like):
  return flags_B.reshape(-1, *[1] * (like.ndim - 1))
