"""Layers: their options, parameters, transformations and equations."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import layers
from rnn_jax.native import library
from tests.cells.equations import vector
from tests.support import close
from tests.support import draws

B, L, D, F = 3, 6, 5, 4
CLOSE = 3e-6  # measured: 5e-7, of the largest number or 1
LENGTHS = np.array([6, 4, 1], np.int32)
NAMED = [
  cls for cls in layers.Layer.__subclasses__() if cls is not layers.Recurrence
]
ALL = pytest.mark.parametrize('cls', NAMED, ids=lambda cls: cls.__name__)
# Options that a layer computes, and those of the cells only.
COMPUTED = {'value_width', 'head_width', 'window'}
HIDDEN = {'state_width', 'dropout', 'fused', 'sees'}


assert_close = functools.partial(close.check, tolerance=CLOSE, floor=1)


@ALL
def test_its_options_are_its_cell_s(cls):
  config = config_lib.load('cells', cls.cell, 'model.cell').Config
  cells = {f.name: f.default for f in dataclasses.fields(config)}
  options = cls(F).cell_options()
  assert options.keys() == cells.keys() - HIDDEN
  for name in options.keys() - COMPUTED:
    assert options[name] == cells[name]


class Model(nn.Module):
  """A user's, with a method that begins."""

  layer: layers.Layer

  def begin(self):
    return self.layer.init_state(B, D)


@ALL
def test_a_model_s_own_method_may_begin(cls):
  layer = cls(2 * F)
  got = Model(layer).apply({}, method='begin')
  jax.tree.map(np.testing.assert_array_equal, got, layer.init_state(B, D))


@ALL
def test_shapes_parameters_and_states(cls):
  layer, x = cls(2 * F), jnp.zeros((B, L, D))
  got, variables = jax.eval_shape(
    functools.partial(layer.init_with_output, method='scan'),
    jax.random.key(0),
    None,
    x,
  )
  module = config_lib.load('cells', cls.cell, 'model.cell')
  cell = module.Cell(module.Config(**layer.cell_options()), 2 * F, inputs=D)
  state = cell.init_state(B)
  want = jax.eval_shape(cell.init, jax.random.key(0), state, x[:, :1])
  assert jax.tree.structure(variables) == jax.tree.structure(want)
  assert got[1].shape == (B, L, 2 * F)
  states = got[0], layer.init_state(B, D), state
  assert len({str(jax.tree.map(jnp.shape, tree)) for tree in states}) == 1
  table = nn.summary.tabulate(layer, jax.random.key(0))(x[:, :1])
  assert cls.__name__ in table and 'projection' in table


def test_a_cell_of_one_s_own_is_a_layer():
  name = 'tests.support.own.average'
  layer = layers.Recurrence(name, F, options={'kept': 0.25})
  assert hash(layer) == hash(layer.clone())
  x = draws.normal(B, L, D)
  variables = draws.parameters(layer.init, x)
  y = jax.jit(layer.apply)(variables, x)
  dense = jax.device_get(variables['params']['projection'])
  h = np.zeros((B, F))
  for t in range(L):
    h = 0.25 * h + 0.75 * np.tanh(
      np.array(x[:, t]) @ dense['kernel'] + dense['bias']
    )
    assert_close(y[:, t], h)


def test_a_layer_equals_the_equations_in_float64():
  layer, x = layers.LSTM(F, reverse=True), draws.normal(B, L, D)
  variables = draws.parameters(layer.init, x)
  y = jax.jit(layer.apply)(variables, x, lengths=LENGTHS)
  params = jax.tree.map(np.float64, variables['params'])
  for row, out, n in zip(np.float64(x), y, LENGTHS, strict=True):
    want, _ = vector.lstm(params, row[:n][::-1], None)
    assert_close(out[:n], want[::-1])
    assert not out[n:].any()


def as_flax(params):
  """An LSTM's parameters as those of flax.linen.OptimizedLSTMCell."""
  parts = {}
  for kind, dense in (('i', 'projection'), ('h', 'recurrent')):
    kernels = jnp.split(params[dense]['kernel'], 4, 1)
    for gate, kernel in zip('ifgo', kernels, strict=True):
      parts[kind + gate] = {'kernel': kernel}
  biases = jnp.split(params['projection']['bias'], 4)
  for gate, bias in zip('ifgo', biases, strict=True):
    parts['h' + gate]['bias'] = bias
  return parts


@jax.numpy_rank_promotion('allow')  # Flax's RNN promotes
def test_it_equals_flax_s_rnn():
  ours, x = layers.LSTM(F, reverse=True), draws.normal(B, L, D)
  variables = draws.parameters(ours.init, x)
  theirs = nn.RNN(
    nn.OptimizedLSTMCell(F),
    reverse=True,
    keep_order=True,
    return_carry=True,
  )

  def run_ours(params, x):
    return ours.apply(
      {'params': params}, None, x, lengths=LENGTHS, method='scan'
    )

  def run_theirs(params, x):
    params = {'cell': as_flax(params)}
    (c, h), y = theirs.apply({'params': params}, x, seq_lengths=LENGTHS)
    valid = jnp.asarray(np.arange(L) < LENGTHS[:, None])
    return (h, c), jnp.where(valid[..., None], y, 0)

  def both_ways(run, params, x):
    out, back = jax.vjp(run, params, x)
    weights = [jnp.cos(leaf) for leaf in jax.tree.leaves(out)]
    return out, back(jax.tree.unflatten(jax.tree.structure(out), weights))

  got, want = (
    jax.jit(functools.partial(both_ways, run))(variables['params'], x)
    for run in (run_ours, run_theirs)
  )
  assert_close(got, want)


def test_halves_and_stored_states_equal_the_whole():
  layer, x = layers.GRU(F), draws.normal(B, L, D)
  variables = draws.parameters(layer.init, x)
  scan = jax.jit(functools.partial(layer.apply, variables, method='scan'))
  fresh = layer.init_state(B, D)
  whole = scan(fresh, x)
  state, first = scan(fresh, x[:, : L // 2])
  state, second = scan(state, x[:, L // 2 :])
  assert_close((state, jnp.concatenate([first, second], 1)), whole)

  def gradient(**options):
    run = functools.partial(layer.clone(**options).apply, x=x)
    slope = jax.grad(lambda variables: jnp.sin(run(variables)).sum())
    return jax.jit(slope)(variables)

  assert_close(gradient(impl='scan', remat_every=2), gradient())


class Block(nn.Module):
  @nn.compact
  def __call__(self, x, _):
    return x + layers.LSTM(D)(nn.LayerNorm()(x)), None


def test_it_works_under_nn_scan_over_layers_and_vmap():
  stack = nn.scan(
    Block, variable_axes={'params': 0}, split_rngs={'params': True}, length=2
  )()
  x = draws.normal(2, B, L, D)
  variables = draws.parameters(stack.init, x[0], None)

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(None, 0))
  @jax.value_and_grad
  def many(variables, x):
    return jnp.sin(stack.apply(variables, x, None)[0]).sum()

  value, gradient = many(variables, x)
  params = variables['params']
  y, one = x[1], jax.jit(Block().apply)
  for n in range(2):
    own = jax.tree.map(lambda leaf, n=n: leaf[n], params)
    y, _ = one({'params': own}, y, None)
  assert_close(value[1], jnp.sin(y).sum())
  for leaf, like in zip(
    *map(jax.tree.leaves, (gradient, variables)), strict=True
  ):
    assert leaf.shape == (2, *like.shape) and leaf.any()


@pytest.mark.native
def test_native_runs_in_one_library_call():
  layer, x = layers.LSTM(F, impl='native'), draws.normal(B, L, D)
  assert not library.lacking()
  variables = draws.parameters(layer.init, x)
  program = jax.make_jaxpr(layer.apply)(variables, x, lengths=LENGTHS)
  assert str(program).count('rnn_jax_lstm_forward') == 1
  with pytest.raises(NotImplementedError, match='multiplies in float32'):
    layer.apply(variables, x.astype('bfloat16'))


@pytest.mark.parametrize(
  ('name', 'given', 'stored'),
  (
    ('auto', 'bfloat16', 'bfloat16'),
    ('auto', 'float32', 'float32'),
    ('bfloat16', 'float32', 'bfloat16'),
    ('bfloat16_operands', 'float32', 'float32'),
  ),
)
def test_the_precision_is_x_s_or_the_one_named(name, given, stored):
  layer, x = layers.GRU(F, precision=name), jnp.zeros((B, L, D), given)
  (state, y), variables = jax.eval_shape(
    functools.partial(layer.init_with_output, method='scan'),
    jax.random.key(0),
    None,
    x,
  )
  assert y.dtype == stored
  for leaf in jax.tree.leaves((state, variables)):
    assert leaf.dtype == jnp.float32


@pytest.mark.parametrize(
  ('layer', 'message'),
  (
    (layers.LSTM(0), 'layers.LSTM: features=0: give 1 or more'),
    (layers.LSTM(F, impl='chunked'), r"layers.LSTM: recurrence.impl='chunked'"),
    (layers.LSTM(F, precision='f32'), "LSTM: precision='f32': choose one of"),
    (layers.LSTM(F, remat_every=-1), 'LSTM: remat_every=-1: give 0 or more'),
    (layers.GRU(F, reset='never'), "layers.GRU: cell.reset='never': choose"),
    (layers.QRNN(F, taps=1.5), 'QRNN: taps=1.5 is of type float: give int'),
    (layers.SimpleRNN(F, heads=0), 'layers.SimpleRNN: cell.heads=0: give 1'),
    (layers.Attention(F, heads=8), 'Attention: cell.head_width=0: give 1'),
    (layers.Attention(F, window=0), 'layers.Attention: window=0: give 1'),
    (layers.Recurrence('lstn', F), "model.cell='lstn': choose one of"),
    (
      layers.Recurrence('lstm', F, options={'forget': 1.0}),
      "unknown config key forget: did you mean 'forget_bias'",
    ),
  ),
)
def test_bad_options_are_refused(layer, message):
  with pytest.raises(errors.InputError, match=message):
    jax.eval_shape(layer.init, jax.random.key(0), jnp.zeros((B, L, D)))
