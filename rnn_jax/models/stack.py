"""A stack of R units: blocks, or periods of a pattern of them (period.py).

`nn.scan` runs one program R times over parameters and states that are stacked
on a leading axis R. Where devices share parameters, a unit's are gathered when
it runs, and again in the backward pass. With model.shared_layers all R units
are one, whose parameters don't have that axis: they are gathered once, and
their gradients are sums over the units (Dehghani et al., "Universal
Transformers", 2019).

Where n devices share the layers, parameters and states are those of a device's
own R/n units, its stage, and rows pass through all stages. The stack's result
is then valid on the last stage, and zero on the others. Below, a layer is a
unit.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import experts
from rnn_jax.models import period
from rnn_jax.models import remat
from rnn_jax.models import shared_block
from rnn_jax.ops import devices

PyTree = Any
RNGS = ('params', 'dropout', 'channels')


def logical_axes(config: config_lib.Model) -> dict[str, str]:
  """Returns the logical axes of a stack's parameters by path."""
  single = period.logical_axes(config)
  stacked = {f'blocks/{path}': f'Rx{x}' for path, x in single.items()}
  for name in ('first', 'shared'):
    stacked |= {f'{name}/{path}': x for path, x in single.items()}
  return stacked


def stage(block: nn.Module) -> Callable[..., tuple[jax.Array, PyTree]]:
  """Returns the function that runs a stage of units like `block`.

  It is that of ops/devices.Stage: parameters and states are stacked over the
  layers, `extra` is starts_BxL or None, `key` the rngs of the rows. Layers fold
  them with their own number, so that masks don't depend on a layer's stage. It
  raises ValueError if groups of the plan don't divide the number of layers.
  """
  plan = block.plan

  def layer(starts_BxL, keys, x, inputs):
    number, params, state = inputs
    keys = jax.tree.map(lambda key: jax.random.fold_in(key, number), keys)
    params = period.gathered(block, params)
    return block.apply({'params': params}, x, state, starts_BxL, rngs=keys)

  stored = layer
  if devices.current().gathers_parameters:
    policy = remat.all_but_gathered
    stored = jax.checkpoint(layer, prevent_cse=False, policy=policy)

  def run(params, x_BxLxD, state, starts_BxL, keys):
    count = jax.tree.leaves(params)[0].shape[0]
    numbers = devices.current().stage * count + jnp.arange(count)
    inputs = numbers, params, state

    def over(layer, length):
      return functools.partial(
        jax.lax.scan,
        functools.partial(layer, starts_BxL, keys),
        unroll=min(block.config.unroll, length),
      )

    if not plan.layers:
      return over(stored, count)(x_BxLxD, inputs)
    _check_groups(plan, count)
    first = remat.function(over(layer, plan.layers), plan)
    group = in_turn(plan, first, over(stored, plan.stored_layers))
    x, new = jax.lax.scan(group, x_BxLxD, grouped(inputs, plan))
    return x, jax.tree.map(lambda x, like: x.reshape(like.shape), new, state)

  return run


def grouped(tree: PyTree, plan: base.Plan) -> PyTree:
  """Splits axis 0 of all leaves into groups and the layers of each."""
  layers = plan.layers + plan.stored_layers
  return jax.tree.map(lambda x: x.reshape(-1, layers, *x.shape[1:]), tree)


def in_turn(
  plan: base.Plan, first: Callable[..., Any], then: Callable[..., Any]
) -> Callable[..., tuple[jax.Array, PyTree]]:
  """Returns what runs a group: `first` on plan.layers, `then` on the others.

  Both take (x, what is stacked over their layers, ...) and return (x, states).
  """

  def run(x, inputs, *args):
    layers = plan.layers
    x, new = first(x, jax.tree.map(lambda leaf: leaf[:layers], inputs), *args)
    if not plan.stored_layers:
      return x, new
    rest = jax.tree.map(lambda leaf: leaf[layers:], inputs)
    x, rest = then(x, rest, *args)
    return x, jax.tree.map(lambda *each: jnp.concatenate(each), new, rest)

  return run


def _check_groups(plan, count):
  if count % (plan.layers + plan.stored_layers):
    plus = f' + remat.stored_layers={plan.stored_layers}'
    raise ValueError(
      f'remat.layers={plan.layers}{plus * bool(plan.stored_layers)}: a stage '
      f'has {count} layers: give a number that divides them'
    )


class Stack(blocks.Module):
  """R units. The state is (the first's or None, the others' stacked).

  The first unit is separate if its input has another width, or if its first
  layers have no experts.
  """

  def setup(self) -> None:
    self._check_stages()
    if self._first_differs:
      self.first = period.unit(self.config)(*period.first(self))
    if self._scanned:
      # Parameters are initialized as if there was no remat.
      group = 0 if self.is_initializing() else self.plan.layers
      layers = self._stacked(group)(*period.others(self))
      if self.config.shared_layers:
        self.shared = layers
      else:
        self.blocks = layers

  def _check_stages(self):
    if self._stages > 1 and self._first_differs:
      raise ValueError(
        f'model.embedding_width={self.config.embedding_width} with '
        f'{self._stages} stages: all layers need the same input width; give 0, '
        'or one stage'
      )
    if self.config.periods % self._stages:
      raise ValueError(
        f'model.layers={self.config.layers}: give a multiple of the '
        f'{self._stages} stages of {len(self.config.pattern)} layers'
      )

  def _stacked(self, group):
    """Returns the class of all scanned layers, in remat groups of `group`."""
    block = self._gathered(group)
    if not group:
      return self._scan(block, self._scanned)
    stored = self.plan.stored_layers
    if group + stored == 1:
      return self._scan(remat.layers(block, self.plan), self._scanned)
    inner = remat.layers(self._scan(block, group), self.plan)
    if stored:
      inner = self._in_turn(inner, self._scan(self._gathered(0), stored))
    outer = self._scan(inner, self._scanned // (group + stored))
    if self.config.shared_layers and not stored:
      return outer
    return nn.map_variables(outer, 'params', trans_in_fn=self._split)

  def _in_turn(self, first, then):
    """Returns the class of a group of layers of two classes."""
    plan = self.plan

    class Group(blocks.Module):
      @nn.compact
      def __call__(self, x, state, starts_BxL):
        fields = period.fields(self)
        run = in_turn(
          plan, first(*fields, name='first'), then(*fields, name='then')
        )
        return run(x, state, starts_BxL)

    return Group

  def _gathered(self, group):
    """Returns the class of a unit that takes sharded parameters."""
    once, current = self.config.shared_layers, devices.current()
    unit = period.unit(self.config)
    if once or self.is_initializing() or not current.shards_parameters:
      return unit

    def gather(variables):
      return {'params': period.gathered(self, variables['params'])}

    block = nn.map_variables(unit, 'params', trans_in_fn=gather)
    if group or not current.gathers_parameters:
      return block
    # Else the gathered parameters of all layers would be saved.
    return nn.remat(block, prevent_cse=False, policy=remat.all_but_gathered)

  def _scan(self, layer, length):
    shared = self.config.shared_layers
    return nn.scan(
      layer,
      variable_axes={experts.ROUTES: 0} | ({} if shared else {'params': 0}),
      variable_broadcast='params' if shared else False,
      split_rngs=dict.fromkeys(RNGS, True) | {'params': not shared},
      in_axes=(0, nn.broadcast),
      out_axes=0,
      length=length,
      # One program initializes all layers.
      unroll=1 if self.is_initializing() else min(self.config.unroll, length),
      # Flax traces the layer twice to check what isn't stacked. Only random
      # numbers depend on it, which it counts in both.
      check_constancy_invariants=any(map(self.has_rng, RNGS)),
    )

  def _split(self, tree):
    """Returns parameters as groups of layers take them, see `_in_turn`."""
    plan, params = self.plan, tree['params']
    if self.config.shared_layers:
      return {'params': {'first': params, 'then': params}}
    params = grouped(params, plan)
    if plan.stored_layers:
      params = {
        'first': jax.tree.map(lambda x: x[:, : plan.layers], params),
        'then': jax.tree.map(lambda x: x[:, plan.layers :], params),
      }
    return {'params': params}

  @property
  def _first_differs(self):
    inner = self.config.embedding_width or self.config.width
    dense = self.config.experts.dense_layers
    return dense > 0 or inner != self.config.width

  @property
  def _scanned(self):
    """The number of this device's layers that are stacked."""
    return self.config.periods // self._stages - self._first_differs

  @property
  def _stages(self):
    whole = self.scope is not None and self.is_initializing()
    return 1 if whole else devices.current().stages

  def init_state(self, B: int) -> PyTree:
    """Returns zero states for B rows; the stacked ones are RxB...."""
    one = period.init_state(self, B)
    stacked = jax.tree.map(
      lambda x: jnp.zeros((self._scanned, *x.shape), x.dtype), one
    )
    return (one if self._first_differs else None, stacked)

  def state_axes(self) -> PyTree:
    """Returns the logical axes of the state, a tree like it."""
    one = period.of_blocks(self, shared_block.state_axes)
    stacked = jax.tree.map('Rx{}'.format, one)
    return (one if self._first_differs else None, stacked)

  def __call__(
    self, state: PyTree, x_BxLxD: jax.Array, starts_BxL: jax.Array | None
  ) -> tuple[PyTree, jax.Array]:
    """Returns (state, x_BxLxD)."""
    first, stacked = state
    stream = period.begin(self, x_BxLxD)
    if self._first_differs:
      stream, first = self.first(stream, first, starts_BxL)
    if self._scanned:
      stream, stacked = self._run(stream, stacked, starts_BxL)
    return (first, stacked), blocks.x_of(stream)

  def _run(self, x, stacked, starts_BxL):
    if self._stages > 1:
      return self._pipelined(x, stacked, starts_BxL)
    layers = self.shared if self.config.shared_layers else self.blocks
    plan = self.plan
    if plan.layers + plan.stored_layers < 2 or self.is_initializing():
      return layers(x, stacked, starts_BxL)
    x, new = layers(x, grouped(stacked, plan), starts_BxL)
    return x, jax.tree.map(lambda x, like: x.reshape(like.shape), new, stacked)

  def _pipelined(self, x, stacked, starts_BxL):
    names = ('dropout', 'channels')
    keys = {name: self.make_rng(name) for name in names if self.has_rng(name)}
    return devices.current().run_stages(
      stage(period.unit(self.config)(*period.fields(self), parent=None)),
      self.variables['params']['blocks'],
      devices.StageInputs(x, stacked, starts_BxL, keys),
    )
