"""Shared blocks: their equation, and a model that uses two of them."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.inference import layers
from rnn_jax.models import language_model
from rnn_jax.models import shared_block
from tests.support import draws

B, L, V, D = 2, 9, 7, 6
MIDDLE = 4  # where the second document of row 1 begins
SHARED = {
  'count': 2,
  'layers': (0, 1, 3),
  'heads': 2,
  'kv_heads': 1,
  'rotary': 0.0,
  'mlp_width': 5,
  'adapter_rank': 2,
  'attention_adapters': True,
}
MAMBA2 = {'heads': 2, 'key_width': 3, 'value_width': 4}
CLOSE = 1e-4  # measured: 2.6e-5, of numbers up to 2.5


def parse(shared=(), **sections):
  raw = config_lib.default(4 * ('mamba2',))
  raw.model.update(width=D, layers=4)
  raw.model.shared_block.update(SHARED | dict(shared))
  raw.data.length = L
  raw.cell.mamba2.update(MAMBA2)
  for name, given in sections.items():
    raw[name].update(given)
  return config_lib.parse(raw)


def build(**sections):
  return language_model.from_config(parse(**sections), V)


def fresh(model, rows=B):
  return model.apply({}, rows, method='init_state')


@functools.cache
def drawn():
  """(A model's parameters, tokens, where documents begin)."""
  tokens = np.random.default_rng(0).integers(V, size=(B, L))
  starts = np.zeros((B, L), np.int32)
  starts[1, MIDDLE] = 1
  model = build()
  params = draws.parameters(model.init, fresh(model), tokens)
  return params, jnp.asarray(tokens), jnp.asarray(starts)


@functools.cache
def whole():
  """(Logits, gradients of the parameters) of the rows."""
  return program(build())(drawn()[0])


def program(model, unstack=lambda params: params):
  """A compiled function of parameters: logits and gradients of a loss."""
  _, tokens, starts = drawn()

  def loss(params):
    own = {'params': unstack(params['params'])}
    _, y = model.apply(own, fresh(model), tokens, starts)
    weights = jnp.cos(jnp.arange(y.size)).reshape(y.shape)
    return jnp.sum(y * weights), y

  def run(params):
    (_, y), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    return y, gradients

  return jax.jit(run)


def assert_close(got, want):
  def compare(a, b):
    largest = np.abs(b).max()
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE * max(largest, 1))

  jax.tree.map(compare, got, want)


def norm(x):
  return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6)


def test_the_equation():
  model = build().config.of_layer(1)
  fields = model, language_model.plan(parse()), build().policy
  shared = shared_block.Shared(*fields)
  rng = np.random.default_rng(1)
  x, e = rng.normal(size=(2, B, L, D))
  F, K = SHARED['mlp_width'], D
  of_mlp = rng.normal(size=(D, 2 * F))
  of_projection = rng.normal(size=(2 * D, 4 * K))
  changes = shared_block.Changes(
    lambda x: x @ jnp.asarray(of_projection, jnp.float32),
    lambda x: x @ jnp.asarray(of_mlp, jnp.float32),
  )
  zero = shared_block._attention(shared, parent=None).init_state(B)
  given = zero, tuple(jnp.asarray(z, jnp.float32) for z in (x, e)), None

  def init(key, *given):
    return shared.init(key, *given, changes)

  params = draws.parameters(init, *given)
  _, got = shared.apply(params, *given, changes)
  p = jax.tree.map(lambda x: np.asarray(x, np.float64), params['params'])
  read = norm(np.concatenate([x, e], -1))
  kernel = p['attention']['projection']['kernel'] + of_projection
  q1, q2, k, v = np.split(read @ kernel, 4, -1)
  heads = []
  for q in (q1, q2):
    scores = np.einsum('blk,bmk->blm', q, k) * (K / 2) ** -0.5
    scores = np.where(np.tri(L, dtype=bool)[None], scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    heads.append(scores / scores.sum(-1, keepdims=True) @ v)
  y = np.concatenate(heads, -1) @ p['attention']['output']['kernel']
  gate, up = np.split(norm(y) @ (p['gate_up']['kernel'] + of_mlp), 2, -1)
  half = (1 + np.vectorize(math.erf)(gate / np.sqrt(2))) / 2
  want = (gate * half * up) @ p['down']['kernel']
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def test_layers_of_their_own_and_remat_have_the_same_numbers():
  params = drawn()[0]
  logits, gradients = whole()
  assert np.abs(
    gradients['params']['stack']['blocks']['shared_1']['down']['kernel']
  ).max()
  apart = program(layers.for_inference(build()), layers.unstack)
  assert_close(apart(params), (logits, gradients))
  again = program(build(remat={'layers': 4}))
  assert_close(again(params), (logits, gradients))


def test_split_and_packed_rows_are_the_row():
  params, tokens, starts = drawn()
  model = build()

  @jax.jit
  def run(params):
    state, first = model.apply(
      params, fresh(model), tokens[:, :3], starts[:, :3]
    )
    state, one = model.apply(params, state, tokens[:, 3:4], starts[:, 3:4])
    _, rest = model.apply(params, state, tokens[:, 4:], starts[:, 4:])
    _, cut = model.apply(params, fresh(model, 1), tokens[1:, MIDDLE:])
    return jnp.concatenate([first, one, rest], 1), cut

  split, cut = run(params)
  assert_close(split, whole()[0])
  assert_close(cut, whole()[0][1:, MIDDLE:])


def test_parameters_and_states_have_logical_axes():
  model = build()
  axes = model.logical_axes()
  assert axes['stack/blocks/shared_1/down/kernel'] == 'Rx_xD'
  _, entries = model.apply({}, method='state_axes')[1]
  assert entries[1].attention.k_BxWxHxK == 'RxBxWxH'
  assert isinstance(entries[1], shared_block.State)
  assert not isinstance(entries[2], shared_block.State)


@pytest.mark.parametrize(
  ('shared', 'sections', 'named'),
  (
    ({'count': 4}, {}, 'count=4: 3 layers take them in turn'),
    ({'layers': (1, 0)}, {}, r'layers=\(1, 0\): give ascending'),
    ({'layers': (4,)}, {}, r'layers=\(4,\): give ascending numbers from 0'),
    ({'heads': 5}, {}, r'heads=5: it must divide 2 \* model.width=12'),
    ({'kv_heads': 3}, {}, 'kv_heads=3: it must divide'),
    ({'rotary': 1.0}, {}, 'rotary=1.0: give a number above 1'),
    ({'heads': 4, 'rotary': 9.0}, {}, 'heads=4: rotary positions need'),
    ({'window': L + 1}, {}, 'window=10: above data.length=9'),
    ({}, {'model': {'layers': 8}}, 'count=2: give model.cells the cell of'),
    ({}, {'mesh': {'tensor': 2}}, 'count=2: not available with mesh.tensor=2'),
    ({}, {'recurrence': {'impl': 'chunked'}}, 'not available with recurr'),
  ),
)
def test_wrong_options_are_refused_by_name(shared, sections, named):
  with pytest.raises(errors.InputError, match=named):
    parse(shared, **sections)
