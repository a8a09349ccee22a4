"""What goes from layer to layer beside x: the values of RWKV-7's first layer.

The model is a hybrid, whose first layer of that cell is the second of all.
tests/interop/formats/hf/test_architectures.py compares the numbers of a model
of that cell alone with its equations.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.inference import layers
from rnn_jax.models import language_model
from tests.support import close
from tests.support import draws

B, L, V, D = 2, 9, 7, 6
# Of the largest number of each array.
CLOSE = 1e-5  # measured: 1.5e-6
SLOPES = 8e-5  # measured: 1.2e-5, with jax 0.12 2.1e-5
RWKV7 = {'heads': 2, 'key_width': 3, 'value_width': 4, 'rank': 2}
RWKV7 |= {'value_rank': 3, 'value_residual': True}


def build(**changes):
  """A small model of two periods, `section__key=value` changed."""
  raw = config_lib.default(('lstm', 'rwkv7'))
  raw.model.update(width=D, layers=4)
  raw.data.length = L
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  raw.cell.rwkv7.update(RWKV7)
  raw.cell.lstm.state_width = 4
  for key, value in changes.items():
    section, _, name = key.partition('__')
    raw[section][name] = value
  return language_model.from_config(config_lib.parse(raw), V)


def inputs():
  tokens = np.random.default_rng(0).integers(V, size=(B, L))
  starts = np.zeros((B, L), np.int32)
  starts[1, 4] = 1
  return jnp.asarray(tokens), jnp.asarray(starts)


@functools.cache
def drawn():
  """A model's parameters, and a state that isn't zero."""
  model = build()
  state = draws.computed(lambda: model.apply({}, B, method='init_state'))
  params = draws.parameters(model.init, state, inputs()[0])['params']
  return params, jax.tree.map(lambda s: draws.normal(*s.shape, seed=1), state)


def program(model):
  """A compiled function of (parameters, state, the weight of the new state).

  It returns ((state, logits), gradients of parameters and state) of a row.
  """

  @jax.jit
  def run(params, state, weight):
    def apply(params, state):
      return model.apply({'params': params}, state, *inputs())

    (new, logits), back = jax.vjp(apply, params, state)
    of_state = jax.tree.map(lambda s: weight * jnp.cos(s), new)
    return (new, logits), back((of_state, jnp.cos(logits)))

  return run


@functools.cache
def usual_program():
  return program(build())


@functools.cache
def usual():
  return usual_program()(*drawn(), 1.0)


assert_close = functools.partial(close.check, tolerance=CLOSE, floor=1)


@pytest.mark.slow
def test_rematerialized_layers_have_the_numbers_of_stored_ones():
  model = build(remat__layers=2, remat__stored_layers=2)
  out, slopes = program(model)(*drawn(), 1.0)
  assert_close(out, usual()[0])
  assert_close(slopes, usual()[1], tolerance=SLOPES)


def test_steps_of_layers_by_themselves_are_the_row():
  params, (position, (_, entries)) = drawn()
  model, tokens, starts = layers.for_inference(build()), *inputs()
  state = tuple(
    jax.tree.map(lambda s, n=n: s[n], entry)
    for n in range(2)
    for entry in entries
  )
  state = position, state
  run, logits = jax.jit(model.apply), []
  own = {'params': layers.unstack(params)}
  for t in range(L):
    now = slice(t, t + 1)
    state, one = run(own, state, tokens[:, now], starts[:, now])
    logits.append(one)
  (_, want), _ = usual()
  assert_close(np.concatenate(logits, 1), want)


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


def test_in_16_bits_states_are_float32():
  params, state = drawn()
  model = build(train__precision='bfloat16')
  run = functools.partial(model.apply, {'params': params}, state)
  new, logits = jax.eval_shape(run, *inputs())
  assert logits.dtype == jnp.float32
  assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(
    lambda x: (x.shape, x.dtype), state
  )
