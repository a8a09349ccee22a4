"""SimpleRNN against float64 NumPy models written from its equations."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells import simple_rnn
from rnn_jax.models import language_model
from tests.support import close
from tests.support import draws
from tests.support import loops

B, L, D = 2, 9, 5
CLOSE = 2e-6  # measured: 6e-7, of the largest number


def build(**options):
  """A cell, its parameters away from 0 and 1, a state and inputs."""
  given = {'heads': 2, 'key_width': 3, 'value_width': 4, **options}
  plan = base.Plan(chunk_length=4)  # compiles faster than 64
  cell = simple_rnn.Cell(simple_rnn.Config(**given), D, plan)
  x, state = draws.normal(B, L, D), cell.init_state(B)
  return cell, draws.parameters(cell.init, state, x), state, x


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def silu(x):
  return x * sigmoid(x)


def dense(params, x):
  return x @ params['kernel'] + params.get('bias', 0.0)


def float64(tree):
  return jax.tree.map(np.float64, tree)


assert_close = functools.partial(close.check, tolerance=CLOSE)


def published(params, x, config):
  """SYSTEMS.md, one head: the projection of x to o, one row of a batch."""
  K, P = config.key_width, config.value_width
  S, out = np.zeros((K, P)), []
  for x_t in x:
    p = dense(params['projection'], x_t)
    q, k, g, v = p[:K], p[K : 2 * K], p[2 * K : 3 * K], p[3 * K :]
    v = np.tanh(v) if config.preset == 'modified' else v
    S = np.diag(sigmoid(g)) @ S + np.outer(sigmoid(k), v)
    out.append(S.T @ q)
  return dense(params['output'], np.stack(out))


@pytest.mark.parametrize('preset', ('simple', 'modified'))
def test_the_published_presets_equal_the_published_equations(preset):
  cell, variables, state, x = build(heads=1, preset=preset)
  _, got = jax.jit(cell.apply)(variables, state, x)
  params = float64(variables['params'])
  want = [published(params, row, cell.config) for row in np.float64(x)]
  assert_close(got, np.stack(want))


def improved(params, x, config):
  """The module's docstring, one row of a batch."""
  H, K, P, W = 2, config.key_width, config.value_width, config.convolution
  T, G = len(x), K if config.decay == 'key' else 1
  heads = dense(params['projection'], x).reshape(T, H, -1)
  q, k, g, v, gate = np.split(heads, np.cumsum([K, K, G, P]), -1)
  mixed = np.concatenate([q, k, v], -1)  # whose channels go head by head
  past = np.pad(mixed.reshape(T, -1), [(W - 1, 0), (0, 0)])
  mixed = sum(params['taps'][d] * past[W - 1 - d :][:T] for d in range(W))
  q, k, v = np.split(silu(mixed).reshape(T, H, -1), [K, 2 * K], -1)
  a = np.broadcast_to(sigmoid(g + params['gate_bias'].reshape(H, G)), k.shape)
  S, out = np.zeros((H, K, P)), []
  for t in range(T):
    S = a[t, ..., None] * S + k[t, ..., None] * v[t, :, None]
    y = np.einsum('hkp,hk->hp', S, q[t])
    out.append(y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-6))
  y = np.stack(out) * silu(gate)
  return dense(params['output'], y.reshape(T, -1))


@pytest.mark.parametrize('decay', simple_rnn.DECAYS)
def test_the_improved_preset_equals_its_equations(decay):
  cell, variables, state, x = build(decay=decay, convolution=3)
  _, got = jax.jit(cell.apply)(variables, state, x)
  params = float64(variables['params'])
  want = [improved(params, row, cell.config) for row in np.float64(x)]
  assert_close(got, np.stack(want))


def coupled(params, x, config):
  """The module's docstring, one row of a batch, head by head."""
  K, P, W = config.key_width, config.value_width, config.convolution
  T, groups = len(x), config.groups
  each = config.heads // groups
  own = dense(params['projection'], x).reshape(T, groups, -1)
  q, k, g, v, gate = np.split(own, np.cumsum([K, K, K, each * P]), -1)
  mixed = np.concatenate([q, k, v], -1)
  past = np.pad(mixed.reshape(T, -1), [(W - 1, 0), (0, 0)])
  mixed = sum(params['taps'][d] * past[W - 1 - d :][:T] for d in range(W))
  mixed = silu(mixed + params['taps_bias']).reshape(T, groups, -1)
  q, k, v = np.split(mixed, [K, 2 * K], -1)
  a = sigmoid(g + params['gate_bias'].reshape(groups, K))
  out = np.zeros((T, config.heads, P))
  for h in range(config.heads):
    group, values = h // each, slice(h % each * P, (h % each + 1) * P)
    S = np.zeros((K, P))
    for t in range(T):
      v_t = v[t, group, values]
      write = (1 - a[t, group]) * k[t, group]
      S = np.diag(a[t, group]) @ S + np.outer(write, v_t)
      y = S.T @ q[t, group] + params['skip'][h] * v_t
      y = y / np.sqrt((y**2).mean() + 1e-6)
      out[t, h] = y * silu(gate[t, group, values])
  return dense(params['output'], out.reshape(T, -1))


@pytest.mark.parametrize('groups', (1, 2))
def test_the_coupled_preset_equals_its_equations(groups):
  cell, variables, state, x = build(
    preset='coupled', heads=4, groups=groups, convolution=3
  )
  _, got = jax.jit(cell.apply)(variables, state, x)
  params = float64(variables['params'])
  want = [coupled(params, row, cell.config) for row in np.float64(x)]
  assert_close(got, np.stack(want))


def test_the_coupled_preset_without_its_changes_is_the_improved_one():
  off = {'input_gate': False, 'skip': False, 'taps_bias': False}
  options = {'preset': 'coupled', 'groups': 2, 'even_taps': False}
  # One gate for each head: those of keys start apart.
  cell, variables, state, x = build(**options, **off, decay='head')
  plain, expected, _, _ = build(decay='head')
  jax.tree.map(np.testing.assert_array_equal, variables, expected)
  y = [jax.jit(one.apply)(variables, state, x)[1] for one in (cell, plain)]
  np.testing.assert_array_equal(*y)


@pytest.mark.parametrize('decay', simple_rnn.DECAYS)
def test_heads_start_with_gates_spread_from_fast_to_slow(decay):
  config = simple_rnn.Config(heads=3, key_width=2, decay=decay, gate_bias=2.0)
  cell = simple_rnn.Cell(config, D)
  x, state = jnp.zeros((B, 1, D)), cell.init_state(B)
  init = jax.jit(cell.init)(jax.random.key(0), state, x)
  want = np.repeat([0.0, 2.0, 4.0], 2 if decay == 'key' else 1)
  np.testing.assert_array_equal(init['params']['gate_bias'], want)


def test_keys_of_the_coupled_preset_start_with_gates_from_fast_to_slow():
  config = simple_rnn.Config(preset='coupled', key_width=3, gate_bias=2.0)
  cell = simple_rnn.Cell(config, D)
  x, state = jnp.zeros((B, 1, D)), cell.init_state(B)
  init = jax.jit(cell.init)(jax.random.key(0), state, x)
  assert [*init['params']['gate_bias']] == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(('attention', 'window'), (('dot', 3), ('general', 50)))
def test_luong_attention_is_over_the_outputs_so_far(attention, window):
  options = {'heads': 1, 'preset': 'simple', 'attention': attention}
  cell, variables, state, x = build(**options, attention_window=window)
  _, got = jax.jit(cell.apply)(variables, state, x)
  params = float64(variables['params'])
  P = cell.config.value_width
  # o = Wo [y; c], whose first half of Wo and a identity matrix return only y.
  y = {'output': {'kernel': np.eye(P)}, 'projection': params['projection']}
  want = []
  for row in np.float64(x):
    outputs, both = published(y, row, cell.config), []
    for t, y_t in enumerate(outputs):
      query = y_t
      if attention == 'general':
        query = y_t @ params['attention_weights']['kernel']
      seen = outputs[max(t - window, 0) : t + 1]
      weights = np.exp(seen @ query)
      both.append([*y_t, *(weights / weights.sum() @ seen)])
    want.append(dense(params['output'], np.array(both)))
  assert_close(got, np.stack(want))


@pytest.mark.parametrize(
  'options', ({}, {'preset': 'simple', 'decay': 'head'}), ids=str
)
def test_separate_projections_equal_the_fused_one(options):
  fused, variables, state, x = build(**options)
  config = fused.config
  apart = dataclasses.replace(config, fused=False)
  apart = fused.clone(config=apart)
  params = variables['params']
  converted = simple_rnn.separate_projections(params, config)
  made = jax.eval_shape(apart.init, jax.random.key(0), state, x)['params']
  assert jax.tree.map(jnp.shape, made) == jax.tree.map(jnp.shape, converted)

  def both_ways(cell, params):
    def loss(params):
      y = cell.apply({'params': params}, state, x)[1]
      return jnp.sin(y).sum(), y

    return jax.jit(jax.grad(loss, has_aux=True))(params)

  slopes, y = both_ways(fused, params)
  separate_slopes, separate_y = both_ways(apart, converted)
  assert_close(separate_y, y)
  jax.tree.map(
    assert_close, simple_rnn.fuse_projections(separate_slopes, config), slopes
  )
  back = simple_rnn.fuse_projections(converted, config)
  assert jax.tree.structure(back) == jax.tree.structure(params)
  assert jax.tree.all(jax.tree.map(np.array_equal, back, params))


def test_the_published_size_has_189504_parameters():
  config = config_lib.default()
  config.model.update({'block': 'plain', 'width': 128, 'layers': 2})
  config.cell.update(
    {'preset': 'simple', 'heads': 1, 'key_width': 32, 'value_width': 64}
  )
  model = language_model.from_config(config_lib.parse(config), 512)

  def init(tokens):
    state = model.apply({}, 2, method='init_state')
    return model.init(jax.random.key(0), state, tokens)['params']

  params = jax.eval_shape(init, jnp.zeros((2, 3), jnp.int32))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 189_504


def test_remat_stores_one_state_per_chunk():
  cell, variables, state, x = build()
  long = jnp.zeros((B, 96, D))

  def turns(**plan):
    run = cell.clone(plan=base.Plan(**plan))
    return loops.lengths(jax.make_jaxpr(run.apply)(variables, state, long))

  assert turns(impl='chunked', chunk_length=96) == [1]
  assert turns(impl='chunked', chunk_length=96, remat_every=32) == [3]
  assert turns(impl='chunked', chunk_length=96, remat_every=8) == [12]
  # 'sqrt' of 324 is 18: rounded up to whole blocks of 16.
  assert turns(impl='chunked', chunk_length=96, remat_every=18) == [3]
  assert turns(impl='scan', remat_every=24) == [4]


def test_dropout_is_on_y_and_only_with_its_key():
  cell, variables, state, x = build(preset='modified', dropout=0.5)
  run = jax.jit(lambda rngs: cell.apply(variables, state, x, rngs=rngs)[1])
  plain, again = run({}), run({})
  dropped = run({'dropout': jax.random.key(0)})
  assert np.array_equal(plain, again) and not np.allclose(plain, dropped)


def checked(options, every=0, impl='auto', tensor=1):
  config = types.SimpleNamespace(
    remat=config_lib.Remat(every),
    recurrence=config_lib.Recurrence(impl),
    mesh=config_lib.Mesh(tensor=tensor),
  )
  simple_rnn.Config(**options).check(config)


@pytest.mark.parametrize('impl', ('auto', 'chunked'))
def test_a_remat_length_that_does_not_fit_chunks_is_refused(impl):
  for every in (17, 24, 100):
    with pytest.raises(errors.InputError, match=f'remat.every={every}: .* 16 '):
      checked({}, every, impl)
  for every in (0, 1, 7, 16, 48, 'sqrt'):
    checked({}, every, impl)
  checked({}, 17, 'scan')


@pytest.mark.parametrize(
  ('options', 'tensor', 'message'),
  (
    ({'groups': 2}, 1, "cell.groups=2: only cell.preset='coupled'"),
    ({'skip': False}, 1, "cell.skip=False: only cell.preset='coupled'"),
    ({'preset': 'coupled', 'groups': 3}, 1, 'must divide cell.heads=4'),
    ({'preset': 'coupled'}, 2, 'mesh.tensor=2 must divide it'),
  ),
)
def test_options_of_the_coupled_preset_are_checked(options, tensor, message):
  with pytest.raises(errors.InputError, match=message):
    checked(options, tensor=tensor)
  checked({'preset': 'coupled', 'groups': 2}, tensor=2)
