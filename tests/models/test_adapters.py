"""Low-rank changes of matrices, against their equation."""

import contextlib

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.config import adapters as config_adapters
from rnn_jax.models import adapters
from rnn_jax.models import language_model
from tests.support import bundles
from tests.support import draws
from tests.support import tiny

MODEL = {
  'embedding': {'embedding': (7, 4)},
  'blocks': {'up': {'kernel': (3, 4, 6), 'bias': (3, 6)}},
  'gates': {'kernel': (3, 2, 5, 4)},  # of 3 layers, for each of 2 heads
  'head': {'kernel': (4, 7)},
}
AXES = {
  'embedding': {'embedding': 'VxD'},
  'blocks': {'up': {'kernel': 'RxDxF', 'bias': 'RxF'}},
  'gates': {'kernel': 'RxHx_x_'},
  'head': {'kernel': 'DxV'},
}


merge = jax.jit(adapters.merge, static_argnums=2)
hold = jax.jit(adapters.hold, static_argnums=1)


@pytest.fixture(name='model')
def _model():
  shapes, tree = jax.tree.flatten(MODEL, is_leaf=lambda x: isinstance(x, tuple))
  return jax.tree.unflatten(tree, [draws.normal(*shape) for shape in shapes])


def options(**changes):
  return config_adapters.Adapters(**{'rank': 2, 'alpha': 3.0} | changes)


def drawn(model, given):
  """Changes that are not zero."""
  changes = jax.eval_shape(
    lambda: adapters.init(jax.random.key(0), model, given)
  )
  return jax.tree.map(lambda x: draws.normal(*x.shape), changes)


def test_a_change_is_the_product_of_two_thin_matrices(model):
  given = options(targets=('.*/kernel', 'embedding/.*'))
  changes = drawn(model, given)
  merged = merge(model, changes, given)

  def by_hand(x, a, b):
    x, a, b = map(np.float64, (x, a, b))
    return x + 3.0 / 2 * np.einsum('...dr,...rf->...df', a, b)

  for path in (('embedding', 'embedding'), ('head', 'kernel')):
    x, change, got = model, changes, merged
    for key in path:
      x, change, got = x[key], change[key], got[key]
    np.testing.assert_allclose(got, by_hand(x, **change), 1e-5, 1e-6)
  for path in ('blocks', 'up'), ('gates',):
    x, change, got = model, changes, merged
    for key in path:
      x, change, got = x[key], change[key], got[key]
    want = by_hand(x['kernel'], **change['kernel'])
    np.testing.assert_allclose(got['kernel'], want, 1e-5, 1e-6)
  bias = merged['blocks']['up']['bias']
  np.testing.assert_array_equal(bias, model['blocks']['up']['bias'])


def test_a_new_change_is_none(model):
  changes = adapters.init(jax.random.key(0), model, options())
  merged = merge(model, changes, options())
  jax.tree.map(np.testing.assert_array_equal, merged, model)
  a = changes['gates']['kernel']['a']
  assert a.shape == (3, 2, 5, 2)
  assert 0.3 < np.abs(a).max() * 5**0.5 <= 1  # each layer and head of its own
  assert len(np.unique(a)) == a.size


def test_dropout_leaves_out_inputs_and_keeps_the_mean(model):
  given = options(dropout=0.5)
  changes = drawn(model, given)
  whole = merge(model, changes, given)['head']['kernel']
  keys = jax.random.split(jax.random.key(1), 2000)
  many = jax.jit(
    jax.vmap(
      lambda key: adapters.merge(model, changes, given, key)['head']['kernel']
    )
  )(keys)
  change, base = np.asarray(many), np.asarray(model['head']['kernel'])
  rows = np.abs(change - base).max(-1) < 1e-6
  assert 0.45 < rows.mean() < 0.55
  # 2000 draws of 0 or 2 have a mean within .1 of 1, at four deviations.
  largest = np.abs(whole - base).max()
  np.testing.assert_allclose(change.mean(0), whole, atol=0.1 * largest)


def test_changes_have_the_axes_of_their_matrices(model):
  given = options(targets=('.*',))
  params = {**model, adapters.KEY: drawn(model, given)}
  axes = adapters.logical_axes(params, AXES)
  assert axes['blocks/up/kernel'] == 'RxDxF'
  assert axes['adapters/blocks/up/kernel/a'] == 'RxDx_'
  assert axes['adapters/blocks/up/kernel/b'] == 'Rx_xF'
  assert axes['adapters/gates/kernel/a'] == 'RxHx_x_'
  assert axes['adapters/embedding/embedding/b'] == '_xD'


def test_what_is_trained_is_what_is_saved(model):
  given = options(targets=('gates/.*',), trained=('head/.*',))
  params = {**model, adapters.KEY: drawn(model, given)}
  trained = adapters.trained(params, given)
  assert {*trained} == {'head', adapters.KEY}
  assert {*trained[adapters.KEY]} == {'gates'}
  blank = jax.tree.map(np.zeros_like, params)
  completed = adapters.completed(blank, trained)
  assert completed['head']['kernel'].any()
  assert not completed['embedding']['embedding'].any()


def test_a_base_in_8_bits_is_what_changes_are_added_to(model):
  given = options(base='int8', trained=('head/.*',))
  changes = drawn(model, given)
  held = hold(model, given)
  assert {*held['gates']['kernel']} == {'int8', 'scale'}
  assert held['gates']['kernel']['int8'].dtype == np.int8
  np.testing.assert_array_equal(held['head']['kernel'], model['head']['kernel'])
  merged = merge(held, changes, given)
  w = np.float64(model['gates']['kernel'])
  scale = np.abs(w).max(-2, keepdims=True) / 127  # of a column
  rounded = scale * np.round(w / scale)
  a, b = (np.float64(changes['gates']['kernel'][side]) for side in 'ab')
  want = rounded + 3.0 / 2 * a @ b
  np.testing.assert_allclose(merged['gates']['kernel'], want, 1e-5, 1e-6)
  assert np.abs(rounded - w).max() > 1e-3
  np.testing.assert_array_equal(
    merged['head']['kernel'], model['head']['kernel']
  )
  axes = adapters.logical_axes({**held, adapters.KEY: changes}, AXES)
  assert axes['gates/kernel/int8'] == 'RxHx_x_'
  assert axes['blocks/up/kernel/scale'] == 'Rx_xF'
  assert axes['embedding/embedding/scale'] == 'Vx_'
  assert not adapters.is_trained('blocks/up/kernel/scale', given)


@pytest.mark.parametrize('key', ('targets', 'trained'))
def test_a_pattern_without_a_match_is_refused(model, key):
  given = options(**{key: ('mlp/.*',)})
  message = (
    rf"adapters.{key}='mlp/\.\*': it matches no name.*(\n.*)*\n  embedding/"
  )
  with pytest.raises(errors.InputError, match=message):
    adapters.init(jax.random.key(0), model, given)


@pytest.mark.slow
@pytest.mark.parametrize('base', ('float32', 'int8'))
def test_layers_sum_their_own_matrices(base):
  raw = tiny.raw_config('')
  raw.model.update(block='residual', mlp_width=8, layers=4)
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  raw.remat.layers = 2
  bundle = bundles.make(raw)
  model = language_model.from_config(bundle.config, bundle.tokenizer.size)
  # In layers, and outside of them.
  targets = '.*/(up|projection)/kernel', 'embedding/.*'
  given = options(base=base, dropout=0.5, targets=targets)
  held = hold(bundle.params, given)
  changes = drawn(bundle.params, given)
  tokens = np.arange(12).reshape(2, 6)

  def loss(changes, combine):
    params, summing = combine(held, changes, given, jax.random.key(1))
    with summing:
      state = model.apply({}, 2, method='init_state')
      _, logits = model.apply({'params': params}, state, tokens)
    return jax.numpy.sum(jax.nn.log_softmax(logits)[..., 3])

  def at_once(*args):
    return adapters.merge(*args), contextlib.nullcontext()

  run = jax.jit(jax.value_and_grad(loss), static_argnums=1)
  (got, grads), (want, others) = (
    run(changes, combine) for combine in (adapters.by_layer, at_once)
  )
  np.testing.assert_allclose(got, want, 1e-5)
  assert np.abs(grads['stack']['blocks']['mlp']['up']['kernel']['a']).max() > 0
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, 1e-4, 1e-4 * np.abs(y).max()),
    grads,
    others,
  )


def test_changes_are_added_to_a_base_in_4_bits(model):
  given = options(base='int4', targets=('blocks/.*/kernel',))
  changes = drawn(model, given)
  held = hold(model, given)
  assert {*held['blocks']['up']['kernel']} == {'int4', 'scale'}
  assert {*held['gates']['kernel']} == {'int8', 'scale'}  # columns of 5
  merged = merge(held, changes, given)['blocks']['up']['kernel']
  a, b = (np.float64(changes['blocks']['up']['kernel'][x]) for x in 'ab')
  rounded = np.float64(merged) - 3.0 / 2 * a @ b
  w = np.float64(model['blocks']['up']['kernel'])
  assert 1e-3 < np.abs(rounded - w).max() < np.abs(w).max() / 7
  scale = np.float64(held['blocks']['up']['kernel']['scale'])
  numbers = rounded / scale
  np.testing.assert_allclose(numbers, np.round(numbers), 0, 1e-4)
  axes = adapters.logical_axes({**held, adapters.KEY: changes}, AXES)
  assert axes['blocks/up/kernel/int4'] == 'Rx_xF'
  assert axes['blocks/up/kernel/scale'] == 'Rx_xF'
