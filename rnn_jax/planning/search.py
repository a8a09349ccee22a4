"""Searches for the best mesh: estimates all, compiles the best few.

Candidates are the ways to factor the devices over data, fsdp, pipe and tensor
in powers of two (an odd factor goes to data). The config and the placement may
refuse a mesh; so does a train state that exceeds a device's memory. An estimate
of the step ranks the others:

    work      flops of one device / (devices (1 - bubble))
    data      2 g            the gradients' all-reduce
    fsdp      2 p + g        parameters gathered twice, gradients scattered
    tensor    4 x            activations at two places a layer, and back
    pipe      2 x / layers   activations handed on, and back

times (n - 1) / n, twice for all-reduces. p and g are the bytes of a device's
gathered parameters, in the format of factors, and of its gradients; x is the
bytes of the activations that leave each of its layers. predict.py ranks those
that are compiled.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.ops import precision
from rnn_jax.parallel import axes
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.parallel import placement
from rnn_jax.parallel import rules as rules_lib
from rnn_jax.planning import plan as plan_lib
from rnn_jax.planning import predict
from rnn_jax.planning import program as program_lib

SEARCHED = 'data', 'fsdp', 'pipe', 'tensor'
COMPILED = 3  # the best by estimate
SMALLEST = 2  # by state, if none of those fits
FLOAT = 4  # bytes of a gradient


class Candidate(NamedTuple):
  """A mesh that is estimated.

  Attributes:
    sizes: {axis: size} of SEARCHED.
    state: bytes of parameters, gradients and optimizer's state of a device.
    step: seconds, estimated.
    refused: why it can't run, or ''.
    longest: what takes most of the step, 'work' or an axis.
  """

  sizes: dict[str, int]
  state: int = 0
  step: float = math.inf
  refused: str = ''
  longest: str = ''


class Model(NamedTuple):
  """What all candidates share.

  Attributes:
    params: shapes of the parameters.
    optimizer: shapes of the optimizer's state.
    logical_axes: of the parameters.
    baseline: seconds of the batch on one device.
  """

  params: dict
  optimizer: dict
  logical_axes: dict[str, str]
  baseline: float


def find(
  request: plan_lib.Request,
) -> tuple[list[plan_lib.Plan], list[Candidate]]:
  """Returns the plans that were compiled, the best first, and all candidates.

  Raises:
    InputError: no mesh can run.
  """
  whole = program_lib.workload(program_lib.one_device(request.config))
  rows = program_lib.rows_of(whole, request.rows)
  request = dataclasses.replace(request, rows=rows)
  shared = model(request)
  every = candidates(request, shared)
  if all(one.refused for one in every):
    reasons = '; '.join(
      f'{plan_lib.name(one.sizes)}: {one.refused}' for one in every[:3]
    )
    raise errors.InputError(
      f'--devices={request.devices}: no mesh can run {rows} rows: {reasons}'
    )
  return choose(request, every, shared), every


def model(request: plan_lib.Request) -> Model:
  """Returns the Model of a request."""
  config = program_lib.one_device(request.config)
  programs = program_lib.workload(config).programs
  state = programs.states.like(request.rows)
  baseline = predict.one_device_seconds(
    request.config, request.rows, request.device, request.efficiency
  )
  logical_axes = programs.task.logical_axes()
  return Model(state.params, state.opt_state, logical_axes, baseline)


def candidates(request: plan_lib.Request, shared: Model) -> list[Candidate]:
  """Returns all candidates: those that can run come first, by their time."""
  every = [
    _candidate(request, shared, sizes) for sizes in meshes(request.devices)
  ]
  return sorted(every, key=lambda one: (bool(one.refused), one.step))


def meshes(devices: int) -> Iterator[dict[str, int]]:
  """Yields sizes of SEARCHED: powers of two, with an odd factor along data."""
  twos = (devices & -devices).bit_length() - 1
  for fsdp in range(twos + 1):
    for pipe in range(twos + 1 - fsdp):
      for tensor in range(twos + 1 - fsdp - pipe):
        cut = 2**fsdp, 2**pipe, 2**tensor
        sizes = devices // math.prod(cut), *cut
        yield dict(zip(SEARCHED, sizes, strict=True))


def choose(
  request: plan_lib.Request, every: list[Candidate], shared: Model
) -> list[plan_lib.Plan]:
  """Returns the best few by estimate, compiled: the fastest that fits first.

  If none of them fits, those with the smallest state are compiled too, until
  one does.
  """

  def compile(one):
    config = program_lib.with_mesh(request.config, one.sizes)
    return plan_lib.compiled(request, config, shared.baseline)

  able = [one for one in every if not one.refused]
  plans = [compile(one) for one in able[:COMPILED]]
  for one in sorted(able[COMPILED:], key=lambda one: one.state)[:SMALLEST]:
    if any(plan.prediction.fits for plan in plans):
      break
    plans.append(compile(one))
  return sorted(
    plans, key=lambda plan: (not plan.prediction.fits, plan.prediction.step)
  )


def _candidate(request, shared, sizes):
  try:
    config = program_lib.with_mesh(request.config, sizes)
    mesh = mesh_lib.make(config.mesh, jax.devices()[: request.devices])
    multiple = mesh_lib.row_multiple(mesh, config.mesh)
    multiple *= config.train.accumulate
    if request.rows % multiple:
      return Candidate(sizes, refused=f'{multiple} must divide the rows')
    where = placement.Placement(
      mesh, config.mesh, shared.params, shared.logical_axes
    )
  except errors.InputError as error:
    return Candidate(sizes, refused=str(error))
  return _estimated(request, shared, config, where)


def _estimated(request, shared, config, where):
  sizes = {name: where.mesh.shape[name] for name in SEARCHED}
  kept, gradients = (
    placement.device_bytes(shared.params, where.shardings(kind))
    for kind in ('parameters', 'gradients')
  )
  optimizer = placement.device_bytes(
    shared.optimizer, where.optimizer_shardings(shared.optimizer)
  )
  state = kept + gradients + optimizer
  usable = predict.USABLE * request.device.memory
  if state > usable:
    why = f'its state needs {state / 2**30:.3g} GiB per device'
    return Candidate(sizes, state, refused=why)
  spent = _spent(request, shared, config, sizes)
  longest = max(spent, key=spent.get)
  return Candidate(sizes, state, sum(spent.values()), '', longest)


def _spent(request, shared, config, sizes):
  """Returns seconds of work and along each axis; see the module's docstring."""
  again = 1 + (config.mesh.zero == rules_lib.STAGES['parameters'])
  cut = sizes['tensor'] * sizes['pipe']
  policy = precision.policy(config.train.precision)
  activation = jnp.dtype(policy.activations).itemsize
  # Parameters travel in the format in which they are multiplied.
  operand = jnp.dtype(precision.FORMATS[policy.operands][0]).itemsize
  count = sum(math.prod(x.shape) for x in jax.tree.leaves(shared.params)) / cut
  rows = request.rows / (sizes['data'] * sizes['fsdp'])
  left = activation * rows * config.data.length * config.model.width
  layers = config.model.layers / sizes['pipe']
  ring = {name: (n - 1) / n for name, n in sizes.items()}
  bytes_by_axis = {
    'data': 2 * ring['data'] * FLOAT * count / sizes['fsdp'],
    'fsdp': ring['fsdp'] * count * (FLOAT + again * operand),
    'tensor': 2 * ring['tensor'] * 4 * left * layers,
    'pipe': 2 * left * (sizes['pipe'] > 1),
  }
  full = tuple(sizes.get(name, 1) for name in axes.NAMES)
  bubble = program_lib.bubble(config.mesh)
  return {'work': shared.baseline / request.devices / (1 - bubble)} | {
    name: size / predict.link((name,), full, request.device)
    for name, size in bytes_by_axis.items()
  }
