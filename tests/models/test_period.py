"""A model with a pattern of cells against its layers, run one by one.

Its second layer is the first RWKV-7, whose values go from layer to layer next
to x. tests/interop/formats/hf/test_architectures.py compares a model of that
cell with its equations.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.inference import layers
from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.models import period
from rnn_jax.models import rounded_weights
from rnn_jax.parallel import fsdp
from tests.support import close
from tests.support import draws

B, L, V, D = 2, 14, 7, 6
MIDDLE = 5  # where the second document of row 1 begins
CELLS = ('lstm', 'rwkv7')
RWKV7 = {'heads': 2, 'key_width': 3, 'value_width': 4, 'rank': 2}
RWKV7 |= {'value_rank': 3, 'value_residual': True}
# Of the largest number of each array.
CLOSE = 1e-5  # measured: 1.5e-6
SLOPES = 8e-5  # measured: 1.2e-5, with jax 0.12 2.1e-5


def build(**changes):
  """A small hybrid of two periods, `section__key=value` changed."""
  raw = config_lib.default(CELLS)
  raw.model.update(width=D, layers=4, mlp_width=5)
  raw.data.length = L
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  raw.cell.lstm.state_width = 4
  raw.cell.rwkv7.update(RWKV7)
  for key, value in changes.items():
    section, _, name = key.partition('__')
    raw[section][name] = value
  return language_model.from_config(config_lib.parse(raw), V)


def fresh(model, rows=B):
  return draws.computed(lambda: model.apply({}, rows, method='init_state'))


def inputs():
  tokens = np.random.default_rng(0).integers(V, size=(B, L))
  starts = np.zeros((B, L), np.int32)
  starts[1, MIDDLE] = 1
  return jnp.asarray(tokens), jnp.asarray(starts)


@functools.cache
def drawn():
  """A model's parameters, and a state that isn't zero."""
  model = build()
  state = fresh(model)
  params = draws.parameters(model.init, state, inputs()[0])['params']
  return params, jax.tree.map(lambda s: draws.normal(*s.shape, seed=1), state)


def block_of(model, cell):
  options = getattr(model.cell_config, cell)
  config = dataclasses.replace(model.config, cell=cell, cells=())
  return blocks.Block(config, options, base.Plan(), model.policy)


def by_hand(model, params, state, tokens, starts):
  """(state, logits) of a loop over the layers, each a block of its own."""
  position, (first, stacked) = state
  x, new = params['embedding']['embedding'][tokens], []
  stream = period.begin(model, x)
  runs = [jax.jit(block_of(model, cell).apply) for cell in CELLS]
  for n in range(model.config.layers):
    turn, entry = divmod(n, len(CELLS))
    own = params['stack']['blocks'][f'entry_{entry}']
    own, old = jax.tree.map(lambda x, n=turn: x[n], (own, stacked[entry]))
    stream, state = runs[entry]({'params': own}, stream, old, starts)
    new.append(state)
  x = blocks.x_of(stream)
  x = x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
  logits = x @ params['head']['kernel'] + params['head']['bias'][None, None]
  stacked = tuple(
    jax.tree.map(lambda *x: jnp.stack(x), *new[entry :: len(CELLS)])
    for entry in range(len(CELLS))
  )
  return (position, (first, stacked)), logits


def program(run):
  """A compiled function of (parameters, state, the weight of the new state).

  It returns ((state, logits), gradients of parameters and state) of a row.
  """

  @jax.jit
  def both_ways(params, state, weight):
    def apply(params, state):
      return run(params, state, *inputs())

    (new, logits), back = jax.vjp(apply, params, state)
    of_state = jax.tree.map(lambda s: weight * jnp.cos(s), new)
    return (new, logits), back((of_state, jnp.cos(logits)))

  return both_ways


def whole(model):
  def run(params, *args):
    return model.apply({'params': params}, *args)

  return program(run)


@functools.cache
def usual_program():
  return whole(build())


@functools.cache
def usual():
  return usual_program()(*drawn(), 1.0)


assert_close = functools.partial(close.check, tolerance=CLOSE, floor=1e-3)


@pytest.mark.slow
def test_a_hybrid_is_its_layers_in_turn():
  in_turn = program(functools.partial(by_hand, build()))
  got, want = usual(), in_turn(*drawn(), 1.0)
  assert jax.tree.structure(got) == jax.tree.structure(want)
  assert_close(got[0], want[0])
  assert_close(got[1], want[1], tolerance=SLOPES)


@pytest.mark.slow
def test_rematerialized_layers_have_the_numbers_of_stored_ones():
  model = build(remat__layers=2, remat__stored_layers=2)
  out, slopes = whole(model)(*drawn(), 1.0)
  assert_close(out, usual()[0])
  assert_close(slopes, usual()[1], tolerance=SLOPES)


@pytest.mark.slow
def test_only_its_values_leave_a_layer_without_an_output():
  def cell_of(params):
    return params['stack']['blocks']['entry_1']['cell']

  params, state = drawn()
  params = jax.tree.map(np.array, params)
  cell_of(params)['output']['kernel'][0] = 0
  _, (slopes, _) = jax.device_get(usual_program()(params, state, 0.0))
  cell = cell_of(slopes)
  sizes = {
    name: [float(abs(x[n]).max()) for n in (0, 1)]
    for name, x in ((name, jax.tree.leaves(x)[0]) for name, x in cell.items())
  }
  assert sizes.pop('projections_v')[0] > 1e-3
  assert sizes.pop('shift')[0] > 1e-3  # of the values
  assert sizes.pop('output')[1] > 1e-3
  for first, second in sizes.values():
    assert first == 0 < second


@pytest.mark.slow
def test_steps_of_layers_by_themselves_are_packed_rows():
  """The form of inference has the layers one by one."""
  (params, _), tokens, starts = drawn(), *inputs()
  apart = layers.for_inference(build())
  variables, state = {'params': layers.unstack(params)}, fresh(apart)
  run, steps = jax.jit(apart.apply), []
  for t in range(L):
    now = slice(t, t + 1)
    state, logits = run(variables, state, tokens[:, now], starts[:, now])
    steps.append(logits)
  assert len(state[1]) == build().config.layers
  (_, want), _ = usual_program()(params, fresh(build()), 0.0)
  assert_close(np.concatenate(steps, 1), want)
  # Prefill, and a document by itself.
  half, rest = slice(0, L // 2), slice(L // 2, L)
  model = build()
  run = jax.jit(functools.partial(model.apply, {'params': params}))
  middle, first = run(fresh(model), tokens[:, half], starts[:, half])
  _, second = run(middle, tokens[:, rest], starts[:, rest])
  assert_close(np.concatenate([first, second], 1), want)
  own = slice(MIDDLE, MIDDLE + L // 2)
  _, single = run(fresh(model), tokens[:, own], 0 * starts[:, own])
  assert_close(want[1, own], single[1])


@pytest.mark.slow
def test_shared_layers_share_a_period():
  model = build(model__shared_layers=True)
  tokens, starts = inputs()
  variables = draws.parameters(model.init, fresh(model), tokens)
  stack = variables['params']['stack']
  assert {*stack['shared']} == {f'entry_{n}' for n in range(len(CELLS))}
  repeated = jax.tree.map(lambda x: np.stack([x, x]), stack['shared'])
  params = variables['params'] | {'stack': {'blocks': repeated}}
  _, got = jax.jit(model.apply)(variables, fresh(model), tokens, starts)
  (_, want), _ = usual_program()(params, fresh(model), 0.0)
  assert_close(got, want)


def test_layers_differ_in_what_follows_their_cell():
  raw = config_lib.default(('gru', 'gru', 'lstm'))
  kinds = 'none', 'mlp', 'experts'
  raw.model.update(width=D, layers=6, mlp_width=5, mlps=kinds)
  raw.model.experts.update(count=3, dense_width=4)
  raw.data.length = L
  model = language_model.from_config(config_lib.parse(raw), V)
  tokens, starts = inputs()
  variables = draws.parameters(model.init, fresh(model), tokens)
  entries = variables['params']['stack']['blocks']
  own = [entries[f'entry_{n}'] for n in range(3)]
  assert [{*x} for x in own] == [{'cell'}, {'cell', 'mlp'}, {'cell', 'experts'}]
  assert own[1]['mlp']['up']['kernel'].shape == (2, D, 4)
  assert own[2]['experts']['up']['kernel'].shape == (2, 3, D, 5)
  fsdp.logical_axes(variables['params'], model.logical_axes())
  apart = layers.for_inference(model)
  unstacked = {'params': layers.unstack(variables['params'])}
  _, want = jax.jit(model.apply)(variables, fresh(model), tokens, starts)
  _, got = jax.jit(apart.apply)(unstacked, fresh(apart), tokens, starts)
  assert_close(got, want)


def test_all_parameters_have_logical_axes_and_matrices_8_bits():
  model, (params, _) = build(), drawn()
  axes = fsdp.logical_axes(params, model.logical_axes())
  stack = axes['stack']['blocks']
  assert stack['entry_0']['cell']['recurrent']['kernel'] == 'RxSx_'
  assert stack['entry_1']['cell']['projections_r']['kernel'] == 'RxDxH'
  packed = jax.jit(rounded_weights.pack)(params)
  rounded = jax.jit(rounded_weights.unpack)(packed)
  assert_close(rounded, params, tolerance=1 / 127)


def test_the_state_of_a_period_has_its_axes():
  model = build()
  axes = model.apply({}, method='state_axes')
  state = fresh(model)
  assert jax.tree.structure(axes) == jax.tree.structure(state)
  entries = period.fields(model).entries
  assert [own.config.cell for own in entries] == [*CELLS]
  assert {x.shape[:2] for x in jax.tree.leaves(state)} == {(2, B)}


def test_in_16_bits_states_are_float32():
  params, state = drawn()
  model = build(train__precision='bfloat16')
  run = functools.partial(model.apply, {'params': params}, state)
  new, logits = jax.eval_shape(run, *inputs())
  assert logits.dtype == jnp.float32
  assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(
    lambda x: (x.shape, x.dtype), state
  )
