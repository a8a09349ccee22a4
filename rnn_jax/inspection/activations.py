"""Gates, states and hidden units of each layer on real tokens, and its experts.

`Cell.gates` returns a cell's gates, `Cell.units` its hidden units besides those
of the MLP. A row is run step by step (`Cell.step`, the definition), which also
shows gates that read the state before them. Padding after a row's last target
doesn't count. A cell whose steps see their whole row has no state, and nothing
is run step by step.

A channel keeps the share a_t of its state in each step. Its half-life in steps
is that of its mean log-decay: log(1/2) / mean_t log a_t.

Gate values are counted in bins of equal width in log(a / (1 - a)), 1/32 each:
quantiles are exact to that, whatever is near 0 or 1.
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.inference import layers
from rnn_jax.inspection import anatomy
from rnn_jax.models import blocks
from rnn_jax.models import experts
from rnn_jax.models import period
from rnn_jax.models import remat
from rnn_jax.models import series
from rnn_jax.models import series_labels
from rnn_jax.models import vision

LOGIT, BINS = 16.0, 1024  # bins lie in [-LOGIT, LOGIT]; the rest at the ends
HIGH, LOW = 0.99, 0.01
SILENT = {
  'relu': 0.0,
  'channel_mix': 0.0,
}  # largest |a| of a unit at rest, by MLP
SILENT_ELSEWHERE = 1e-6
MLP, CELL = 'mlp', 'cell'  # where hidden units are


class Gate(NamedTuple):
  """Sums over real tokens and channels."""

  count: jax.Array
  total: jax.Array
  above: jax.Array  # how many are above HIGH
  below: jax.Array  # how many are below LOW
  counts: jax.Array  # of each bin


class Units(NamedTuple):
  """Hidden units of one kind, over real tokens."""

  largest: jax.Array  # |a| of each
  silent: jax.Array  # how many |a| are at rest, of all units at all tokens


class Layer(NamedTuple):
  """Observations of a layer on a batch; None or {} if there are none."""

  gates: dict[str, Gate]
  loga: jax.Array | None  # of each channel, summed over real tokens
  squares: dict[str, jax.Array]  # {part of the state: sum over rows, by step}
  rows: jax.Array  # how many, by step
  units: dict[str, Units]  # by MLP, CELL
  load: jax.Array | None = None  # how many tokens chose each expert


def layers_of(
  model: nn.Module, params: dict, batch: batch_lib.Batch
) -> list[Layer]:
  """Returns the observations of each layer on a batch, without dropout.

  Args:
    model: a LanguageModel, a Forecaster, a Labeller, or a Classifier of texts
      or images.
    params: its parameters.
    batch: its rows begin with a zero state.

  Raises:
    InputError: layers share blocks, and so can't run one by one.
  """
  model, params = anatomy.body(model, params)
  if count := model.config.shared_block.count:
    errors.refuse(
      'model.shared_block.count',
      count,
      'activations are of layers that run one by one: give 0',
    )
  stream = period.begin(model, _enter(model, params, batch))
  plan = base.Plan('auto', model.plan.chunk_length)
  own_fields = period.fields(model)._replace(plan=plan)
  by_layer, seen = _by_layer(params), []
  for n, fields in enumerate(period.layers(own_fields)):
    block = blocks.Block(*fields, parent=None)
    # Layers that share their parameters have one entry.
    own = by_layer[f'layer_{n % len(by_layer)}']
    stream, layer = _run(block, own, stream, batch)
    seen.append(layer)
  return seen


@jax.jit
def _by_layer(params):
  """Returns the parameters of each layer."""
  return {
    name: x
    for name, x in layers.unstack(params).items()
    if name.startswith('layer_')
  }


@functools.partial(jax.jit, static_argnums=0)
def _enter(model, params, batch):
  if isinstance(model, vision.Classifier):
    return model.apply({'params': params}, batch.image_BxHxWxC, method='read')
  if isinstance(model, series.Forecaster):
    readings = batch.readings_BxLxW, batch.calendar_BxLxF
    covariates = series.Covariates.of(batch)
    return model.apply({'params': params}, *readings, covariates, method='read')
  if isinstance(model, series_labels.Labeller):
    return model.apply({'params': params}, batch.readings_BxLxW, method='read')
  tokens_BxL, starts_BxL = batch.tokens_BxL, batch.starts_BxL
  position_B, _ = model.apply({}, len(tokens_BxL), method='init_state')
  _, x_BxLxD = model.apply(
    {'params': params}, position_B, tokens_BxL, starts_BxL, method='read'
  )
  return x_BxLxD


@functools.partial(jax.jit, static_argnums=0)
def _run(block, params, stream, batch):
  """Returns (stream, Layer) of one layer."""
  cell = blocks.make_cell(block, parent=None)
  B, L = blocks.x_of(stream).shape[:2]
  (stream, _), seen = block.apply(
    {'params': params},
    stream,
    blocks.init_state(block, B),
    batch.starts_BxL,
    capture_intermediates=_projects,
    mutable=['intermediates', experts.ROUTES],
  )
  routes, seen = seen.get(experts.ROUTES), seen['intermediates']
  # An image's steps are real if it is.
  real_BxL = experts.real(batch.weights_BxL)
  real_BxL = jnp.broadcast_to(real_BxL, (B, L))
  (u,) = seen['cell']['project']
  gates, squares = _step_by_step(cell, params['cell'], u, batch.starts_BxL)
  gates, loga = _gates(gates, real_BxL.T)
  hidden = {
    MLP: seen.get('mlp', {}).get(remat.HIDDEN, (None,))[0],
    CELL: cell.apply({'params': params['cell']}, u, method='units'),
  }
  units = {
    of: _units(x, real_BxL, at_rest_below(block.config, of))
    for of, x in hidden.items()
    if x is not None
  }
  squares = {
    name: jnp.sum(jnp.where(real_BxL.T, x, 0), 1) for name, x in squares.items()
  }
  rows = jnp.sum(real_BxL, 0)
  load = _load(routes, real_BxL, block.config.experts) if routes else None
  return stream, Layer(gates, loga, squares, rows, units, load)


def _projects(module, method):
  return isinstance(module, base.Cell) and method == 'project'


def _step_by_step(cell, params, u, starts_BxL):
  """Returns (Gates LxB... or None, {part of the state: squares_LxB})."""
  begin = cell.init_state(jax.tree.leaves(u)[0].shape[0])
  if not jax.tree.leaves(begin):
    return None, {}

  def observe(cell, state, u, starts_B):
    state = base.reset(cell, state, starts_B)
    gates = cell.gates(state, u)
    state, _ = cell.step(state, u)
    return state, (gates, _squares(state))

  def one(state, inputs):
    return cell.apply({'params': params}, state, *inputs, method=observe)

  in_time = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (u, starts_BxL))
  return lax.scan(one, begin, in_time)[1]


def _squares(state):
  """Returns {name: squared norm_B} of a state's parts, without counters."""
  squares = {}
  for path, x in jax.tree.leaves_with_path(state):
    # A counter has one number per row.
    if x.ndim > 1:
      name = jax.tree_util.keystr(path, simple=True, separator='/')
      name = name.rpartition('_B')[0] or name or 'state'
      squares[name] = jnp.sum(x.astype(jnp.float32) ** 2, (*range(1, x.ndim),))
  return squares


def _gates(gates, real_LxB):
  """Returns ({name: Gate}, sum of loga by channel or None)."""
  if gates is None:
    return {}, None
  values = {
    name: _count(x.reshape(*x.shape[:2], -1), real_LxB[..., None])
    for name, x in gates.values.items()
  }
  if gates.loga is None:
    return values, None
  loga = gates.loga.reshape(*gates.loga.shape[:2], -1)
  return values, jnp.sum(jnp.where(real_LxB[..., None], loga, 0), (0, 1))


def _count(x, real):
  x = x.astype(jnp.float32)
  real = jnp.broadcast_to(real, x.shape)
  logits = jnp.log(x) - jnp.log1p(-x)
  bins = (logits + LOGIT) * (BINS / (2 * LOGIT))
  bins = jnp.clip(bins, 0, BINS - 1).astype(jnp.int32)
  return Gate(
    jnp.sum(real),
    jnp.sum(jnp.where(real, x, 0)),
    jnp.sum(real & (x > HIGH)),
    jnp.sum(real & (x < LOW)),
    jnp.zeros(BINS, jnp.int32).at[bins].add(real.astype(jnp.int32)),
  )


def _load(routes, real_BxL, options):
  (chosen_BxLxJ,) = routes['experts']['chosen']
  is_chosen = jax.nn.one_hot(chosen_BxLxJ, options.count, dtype=jnp.int32)
  return jnp.sum(is_chosen * real_BxL[..., None, None], (0, 1, 2))


def _units(hidden, real_BxL, limit):
  size = jnp.abs(hidden.astype(jnp.float32))
  size = size.reshape(*size.shape[:2], -1)
  real = real_BxL[..., None]
  at_rest = real & (size <= limit)
  return Units(jnp.max(jnp.where(real, size, 0), (0, 1)), jnp.sum(at_rest))


def at_rest_below(config: config_lib.Model, of: str) -> float:
  """Returns the largest |a| of a hidden unit at rest.

  Args:
    config: the Model config.
    of: MLP or CELL.
  """
  return 0.0 if of == CELL else SILENT.get(config.mlp, SILENT_ELSEWHERE)
