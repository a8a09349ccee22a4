"""A model with a pattern of cells against its layers, run one by one.

test_beside.py has groups of periods that are computed twice.
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
from rnn_jax.models import int8_weights
from rnn_jax.models import language_model
from rnn_jax.models import period
from rnn_jax.parallel import fsdp
from tests.support import close
from tests.support import draws

B, L, V, D = 2, 14, 7, 8
MIDDLE = 5  # where the second document of row 1 begins
CELLS = ('lstm', 'attention')
# Of the largest number of each array.
CLOSE = 1e-5  # measured: 1e-6
SLOPES = 3e-5  # measured: 1.4e-6, with jax 0.12 7e-6


def build(**changes):
  """A small hybrid of two periods, `section__key=value` changed."""
  raw = config_lib.default(CELLS)
  raw.model.update(width=D, layers=4, mlp_width=6)
  raw.cell.lstm.state_width = 4
  raw.cell.attention.update(heads=4, kv_heads=2, head_width=4, rotary_width=2)
  raw.cell.attention.window = 4
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
  model = build()
  return draws.parameters(model.init, fresh(model), inputs()[0])['params']


def block_of(model, cell):
  options = getattr(model.cell_config, cell)
  config = dataclasses.replace(model.config, cell=cell, cells=())
  return blocks.Block(config, options, base.Plan(), model.policy)


def by_hand(model, params, state, tokens, starts):
  """(state, logits) of a loop over the layers, each a block of its own."""
  position, (first, stacked) = state
  x, new = params['embedding']['embedding'][tokens], []
  runs = [jax.jit(block_of(model, cell).apply) for cell in CELLS]
  for n in range(model.config.layers):
    turn, entry = divmod(n, len(CELLS))
    own = params['stack']['blocks'][f'entry_{entry}']
    own, old = jax.tree.map(lambda x, n=turn: x[n], (own, stacked[entry]))
    x, state = runs[entry]({'params': own}, x, old, starts)
    new.append(state)
  x = x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
  logits = x @ params['head']['kernel'] + params['head']['bias'][None, None]
  stacked = tuple(
    jax.tree.map(lambda *x: jnp.stack(x), *new[entry :: len(CELLS)])
    for entry in range(len(CELLS))
  )
  return (position, (first, stacked)), logits


def loss_of(run):
  """A compiled function of (params, state): (gradients, (state, logits))."""
  tokens, starts = inputs()

  def loss(params, state):
    state, logits = run(params, state, tokens, starts)
    return jnp.sum(jnp.sin(logits)), (state, logits)

  return jax.jit(jax.grad(loss, (0, 1), has_aux=True))


@functools.cache
def program():
  """`loss_of` the model."""
  model = build()

  def run(params, *args):
    return model.apply({'params': params}, *args)

  return loss_of(run)


assert_close = functools.partial(close.check, tolerance=CLOSE, floor=1e-3)


@pytest.mark.slow
def test_a_hybrid_is_its_layers_in_turn():
  model = build()
  state, in_turn = fresh(model), loss_of(functools.partial(by_hand, model))
  for _ in range(2):  # from zeros, and from the state after a row
    got, want = (run(drawn(), state) for run in (program(), in_turn))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert_close(got, want, tolerance=SLOPES)
    _, (state, _) = got


@pytest.mark.slow
def test_prefill_steps_and_packed_rows_give_the_logits_of_one_pass():
  model, tokens = build(), inputs()[0]
  starts = inputs()[1]
  run = jax.jit(functools.partial(model.apply, {'params': drawn()}))
  _, (_, whole) = program()(drawn(), fresh(model))
  half = L // 2
  state, first = run(fresh(model), tokens[:, :half], starts[:, :half])
  _, second = run(state, tokens[:, half:], starts[:, half:])
  assert_close(np.concatenate([first, second], 1), whole)
  own = slice(MIDDLE, MIDDLE + half)
  _, single = run(fresh(model), tokens[:, own], 0 * starts[:, own])
  assert_close(whole[1, own], single[1])
  # The form of inference has the layers one by one.
  apart = layers.for_inference(model)
  variables, state = {'params': layers.unstack(drawn())}, fresh(apart)
  run, steps = jax.jit(apart.apply), []
  for t in range(L):
    now = slice(t, t + 1)
    state, logits = run(variables, state, tokens[:, now], starts[:, now])
    steps.append(logits)
  assert_close(np.concatenate(steps, 1), whole)
  assert len(state[1]) == model.config.layers


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
  _, (_, want) = program()(params, fresh(model))
  assert_close(got, want)


def test_all_parameters_have_logical_axes_and_matrices_8_bits():
  model = build()
  axes = fsdp.logical_axes(drawn(), model.logical_axes())
  stack = axes['stack']['blocks']
  assert stack['entry_0']['cell']['recurrent']['kernel'] == 'RxSx_'
  assert stack['entry_1']['cell']['projection']['kernel'] == 'RxDxH'
  packed = jax.jit(int8_weights.pack)(drawn())
  like = int8_weights.like(packed, drawn())
  assert jax.tree.structure(like) == jax.tree.structure(packed)
  rounded = jax.jit(int8_weights.unpack)(packed)
  assert_close(rounded, drawn(), tolerance=1 / 127)


def test_the_state_of_a_period_has_its_axes():
  model = build()
  axes = model.apply({}, method='state_axes')
  state = fresh(model)
  assert jax.tree.structure(axes) == jax.tree.structure(state)
  entries = period.fields(model).entries
  assert [own.config.cell for own in entries] == [*CELLS]
  assert {x.shape[:2] for x in jax.tree.leaves(state)} == {(2, B)}
