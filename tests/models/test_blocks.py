"""Blocks and their stack against the sums that their docstring gives."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells import simple_rnn
from rnn_jax.models import blocks
from rnn_jax.models import mlp as mlp_lib
from rnn_jax.models import stack as stack_lib
from rnn_jax.ops import precision
from tests.support import close
from tests.support import draws

B, L, D, R = 2, 6, 8, 3
# Preset 'improved' divides by the norms of small heads: rounding, magnified.
CELL = simple_rnn.Config('simple', heads=2, key_width=3, value_width=4)
CLOSE = 5e-6  # measured: 2.3e-6, of the largest number
PARTS = (CELL, base.Plan(chunk_length=4), precision.POLICIES['float32'])


def build(E=D, **model):
  """A stack, its parameters and inputs of width E."""
  config = config_lib.Model(width=D, layers=R, **model)
  stack = stack_lib.Stack(config, *PARTS)
  x, state = draws.normal(B, L, E), draws.computed(lambda: stack.init_state(B))
  return stack, draws.parameters(stack.init, state, x, None), state, x


assert_close = functools.partial(close.check, tolerance=CLOSE)


def rms_norm(x):
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


@jax.jit
def run_cell(params, x):
  cell = simple_rnn.Cell(CELL, D)
  return cell.apply({'params': params}, cell.init_state(B), x)


def layer_norm(x, params):
  x = x - x.mean(-1, keepdims=True)
  x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
  return x * params['scale'] + params['bias']


def erf(x):
  return np.vectorize(math.erf)(x)


def gelu_tanh(x):
  return x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2


ACTIVATIONS = {
  'swiglu': lambda x, beta: x / (1 + np.exp(-beta * x)),
  'swish': lambda x, beta: x / (1 + np.exp(-beta * x)),
  'geglu': lambda x: x * (1 + erf(x / 2**0.5)) / 2,
  'gelu': lambda x: x * (1 + erf(x / 2**0.5)) / 2,
  'gelu_tanh': gelu_tanh,
  'geglu_tanh': gelu_tanh,
  'relu': lambda x: np.maximum(x, 0),
  'squared_relu': lambda x: np.maximum(x, 0) ** 2,
}


def normed(params, name, x):
  if name not in params:
    return rms_norm(x)
  if 'bias' in params[name]:
    return layer_norm(x, params[name])
  return rms_norm(x) * (1 + params[name]['scale'])


def mlp(config, params, x):
  def dense(name, x):
    bias = params[name]['bias'] if config.biases else 0
    return x @ params[name]['kernel'] + bias

  activate = ACTIVATIONS[config.mlp]
  if config.mlp in ('swiglu', 'swish'):
    activate = functools.partial(activate, beta=config.swish_beta)
  if 'gate' in params:
    return dense('down', activate(dense('gate', x)) * dense('up', x))
  return dense('down', activate(dense('up', x)))


def by_hand(config, params, x):
  """One block of the docstring, around the cell."""
  params = jax.tree.map(np.asarray, params)
  if config.block == 'plain':
    return run_cell(params['cell'], x)
  state, y = run_cell(params['cell'], normed(params, 'cell_norm', x))
  r = config.residual_multiplier
  x = x + r * np.asarray(y)
  if config.mlp_width:
    y = mlp(config, params['mlp'], normed(params, 'mlp_norm', x))
    x = x + r * config.mlp_multiplier * y
  return state, x


@pytest.mark.parametrize(
  ('E', 'model'),
  (
    (D, {'mlp_width': 5, 'mlp': 'gelu', 'norm': 'layer', 'biases': True}),
    (
      D,
      {'mlp_width': 5, 'mlp': 'geglu_tanh', 'norm_scale': True}
      | {'norm_plus_one': True},
    ),
    (D, {'mlp_width': 5, 'swish_beta': 0.5}),
    (
      D,
      {'mlp_width': 5, 'residual_multiplier': 0.5, 'mlp_multiplier': 3.0},
    ),
    (D, {'block': 'residual'}),
    (4, {'block': 'plain', 'embedding_width': 4}),
  ),
  ids=str,
)
def test_the_scan_over_layers_equals_a_loop_over_their_parameters(E, model):
  stack, variables, state, x = build(E, **model)
  got_state, got = jax.jit(stack.apply)(variables, state, x, None)
  params, states = variables['params'], []
  x = np.asarray(x)
  layers = [
    jax.tree.map(lambda p, n=n: p[n], params['blocks'])
    for n in range(R - ('first' in params))
  ]
  if E != D:
    layers = [params['first'], *layers]
  assert len(layers) == R
  for layer in layers:
    state, x = by_hand(stack.config, layer, x)
    states.append(state)
  first = states.pop(0) if E != D else None
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
  assert_close((got_state, got), ((first, stacked), x))


def test_an_mlp_is_its_equation():
  x, made = draws.normal(B, L, D), {}
  for name in ACTIVATIONS:
    beta = {'swish_beta': 1.7} if name.startswith('swi') else {}
    config = config_lib.Model(
      width=D, mlp_width=5, mlp=name, biases=True, **beta
    )
    module = mlp_lib.Mlp(config, precision.POLICIES['float32'])
    made[name] = module, draws.parameters(module.init, x)['params']

  @jax.jit
  def run(params):
    return {
      name: module.apply({'params': params[name]}, x)
      for name, (module, _) in made.items()
    }

  got = run({name: params for name, (_, params) in made.items()})
  for name, (module, params) in made.items():
    exact = jax.tree.map(np.float64, params)
    want = mlp(module.config, exact, np.float64(x))
    assert_close(got[name], want, name=name)


def test_unrolled_layers_give_the_same_numbers():
  stack, variables, state, x = build(mlp_width=5)

  def apply(variables, unroll):
    config = dataclasses.replace(stack.config, unroll=unroll)
    return stack_lib.Stack(config, *PARTS).apply(variables, state, x, None)

  run = jax.jit(apply, static_argnums=1)
  assert f'unroll={R}' in str(run.trace(variables, R).jaxpr)
  assert_close(run(variables, R), run(variables, 1))


def test_layers_begin_with_different_parameters():
  stack, _, state, x = build()
  params = jax.jit(stack.init)(jax.random.key(1), state, x, None)['params']
  kernel = params['blocks']['cell']['projection']['kernel']
  assert kernel.shape[0] == R and not np.array_equal(kernel[0], kernel[1])


def test_a_single_first_layer_needs_no_stack():
  config = config_lib.Model(width=D, layers=1, block='plain', embedding_width=4)
  stack = stack_lib.Stack(config, *PARTS)
  run = functools.partial(stack.init_with_output, jax.random.key(0))
  x = jnp.zeros((B, L, 4))
  (state, y), variables = jax.eval_shape(run, stack.init_state(B), x, None)
  assert y.shape == (B, L, D) and [*variables['params']] == ['first']
  assert jax.tree.leaves(state[1])[0].shape[0] == 0


def test_a_stack_has_states_for_each_layer_and_row():
  _, stacked = build()[0].init_state(5)
  shapes = [leaf.shape[:2] for leaf in jax.tree.leaves(stacked)]
  assert shapes and set(shapes) == {(R, 5)}


def test_kernels_begin_with_the_requested_deviation():
  config = config_lib.Model(
    width=64, layers=4, mlp_width=256, kernel_scale=0.02, branch_scale=0.5
  )
  stack = stack_lib.Stack(config, *PARTS)
  x, state = draws.normal(B, L, 64), stack.init_state(B)

  @jax.jit
  def init(key):
    params = stack.init(key, state, x, None)['params']
    return blocks.scaled(params, key, config)

  mlp = init(jax.random.key(0))['blocks']['mlp']
  kernels = {name: np.asarray(dense['kernel']) for name, dense in mlp.items()}
  for name, wanted in (('gate', 0.02), ('up', 0.02), ('down', 0.01)):
    assert np.std(kernels[name]) == pytest.approx(wanted, rel=0.02)
  assert not np.array_equal(kernels['gate'], kernels['up'])
  assert not np.array_equal(kernels['gate'][0], kernels['gate'][1])


@pytest.mark.parametrize('block', ('residual', 'plain', 'elements'))
def test_residual_blocks_drop_a_channel_for_all_steps(block):
  config = config_lib.Model(block=block, dropout=0.5)
  if block == 'elements':
    config = config_lib.Model(dropout_shape='elements', dropout=0.5)
  ones = jnp.ones((4, 16, 8))
  rngs = blocks.dropout_keys(jax.random.key(0))
  dropped = np.array(
    blocks.dropout(config).apply({}, ones, deterministic=False, rngs=rngs)
  )
  same = (dropped == dropped[:, :1]).all()
  assert same == (block == 'residual')
  assert set(np.unique(dropped)) == {0.0, 2.0}


def standard(x):
  x = x - x.mean(-1, keepdims=True)
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize('block', blocks.AROUND_SUM)
def test_blocks_with_a_norm_around_their_sum(block):
  stack, variables, state, x = build(block=block, norm='standard')
  _, got = jax.jit(stack.apply)(variables, state, x, None)
  for n in range(R):
    x = standard(x) if block == 'renormed' else x
    params = jax.tree.map(lambda p, n=n: p[n], variables['params'])
    _, y = run_cell(params['blocks']['cell'], x)
    x = standard(x + standard(np.float64(y)))
  assert_close(got, x)


@functools.cache
def one_layer_in_turn():
  """The loss and gradients of the next test."""
  stack, variables, state, x = build(shared_layers=True, block='normed')
  block = blocks.Block(stack.config, *PARTS)
  own = jax.tree.map(lambda s: s[0], state[1])

  @jax.jit
  @functools.partial(jax.value_and_grad, argnums=(0, 1))
  def run(params, x):
    for _ in range(R):
      x, _ = block.apply({'params': params['shared']}, x, own, None)
    return jnp.cos(x).sum()

  return run(variables['params'], x)


# Stored layers, and a group whose activations are recomputed.
@pytest.mark.slow
@pytest.mark.parametrize('group', (0, 3))
def test_shared_layers_are_one_layer_run_repeatedly(group):
  stack, variables, state, x = build(shared_layers=True, block='normed')
  assert variables['params'].keys() == {'shared'}
  plan = base.Plan(chunk_length=4, layers=group)
  grouped = stack.clone(plan=plan)

  def by_stack(params, x):
    return jnp.cos(grouped.apply({'params': params}, state, x, None)[1]).sum()

  run = jax.jit(jax.value_and_grad(by_stack, (0, 1)))
  assert_close(run(variables['params'], x), one_layer_in_turn())


def test_sown_hidden_units_do_not_change_the_program(monkeypatch):
  stack, variables, state, x = build(mlp_width=6)

  def program():
    def total(variables):
      return jnp.sum(stack.apply(variables, state, x, None)[1])

    return str(jax.make_jaxpr(jax.grad(total))(variables))

  hlo = program()
  monkeypatch.setattr(mlp_lib.Mlp, 'sow', lambda *inputs: None)
  assert hlo == program()
