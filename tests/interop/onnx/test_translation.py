"""Operations of jax as ONNX graphs, against jax."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

from rnn_jax import errors
from rnn_jax.interop.onnx import graph as graph_lib
from rnn_jax.interop.onnx import translation

B, L, K = 2, 5, 3
RNG = np.random.default_rng(0)
X = RNG.normal(0, 1, (B, L, K)).astype(np.float32)
ROWS = np.array([[4, 0, 1], [2, 2, 3]], np.int32)


def build(function, *arrays):
  """A graph of a function; the first two sizes of X, and rows, are symbolic."""
  rows, length = jax.export.symbolic_shape('B, L')
  shapes = [
    jax.ShapeDtypeStruct(
      (rows, length, K) if n == 0 else (rows, 3) if x is ROWS else x.shape,
      x.dtype,
    )
    for n, x in enumerate(arrays)
  ]
  traced = jax.make_jaxpr(function)(*shapes)
  graph = graph_lib.Graph()
  context = translation.Context(graph)
  names = [f'input_{n}' for n in range(len(arrays))]
  inputs = [
    graph_lib.info(name, x.shape, x.dtype)
    for name, x in zip(names, shapes, strict=True)
  ]
  for axis, size in enumerate('BL'):
    graph.define_dim(size, names[0], axis)
  args = [context.value(*pair) for pair in zip(names, shapes, strict=True)]
  results = context.run(traced.jaxpr, traced.consts, args)
  made = [graph.node('Identity', graph.whole(value)) for value in results]
  infos = [
    graph_lib.info(name, value.shape, value.dtype)
    for name, value in zip(made, results, strict=True)
  ]
  model = onnx.helper.make_model(
    graph.build('test', inputs, infos),
    opset_imports=[onnx.helper.make_opsetid('', 27)],
    ir_version=10,
  )
  onnx.checker.check_model(model, full_check=True)
  return model


def assert_same(function, *arrays):
  model = build(function, *arrays)
  session = onnxruntime.InferenceSession(model.SerializeToString())
  feeds = {f'input_{n}': np.asarray(x) for n, x in enumerate(arrays)}
  made = session.run(None, feeds)
  wanted = jax.tree.leaves(function(*map(jnp.asarray, arrays)))
  for found, expected in zip(made, wanted, strict=True):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


def scanned(x, w):
  """Steps with two states, one of which counts, and two outputs, reversed."""

  def step(carry, x_t):
    h, count = carry
    h = jnp.tanh(x_t @ w + h)
    return (h, count + 1), (h, x_t)

  first = jnp.zeros_like(x[:, 0]), jnp.int32(0)
  return jax.lax.scan(step, first, x.swapaxes(0, 1), reverse=True)


def halved(x):
  """A loop whose number of rounds depends on the numbers."""
  return jax.lax.while_loop(
    lambda state: jnp.max(state[0]) > 0.01,
    lambda state: (state[0] / 2, state[1] + x.shape[1]),
    (jnp.abs(x), jnp.int32(0)),
  )


FUNCTIONS = {
  'elementwise': (
    lambda x: [
      f(x)
      for f in (
        *(jnp.exp, jnp.expm1, jnp.sin, jnp.cos, jnp.tanh, jnp.sign, jnp.floor),
        *(jnp.ceil, jnp.abs, jnp.square, jax.nn.silu, jax.nn.log_sigmoid),
        *(jnp.exp2, jnp.isnan, jnp.isfinite, jax.nn.softplus, jnp.isinf),
        lambda x: jax.lax.rsqrt(x * x + 1),
        lambda x: jnp.log1p(jnp.abs(x)),
        lambda x: x**3,
        lambda x: jax.scipy.special.erfc(x) + jax.scipy.special.erf(x),
        lambda x: jnp.clip(x, -0.5, 0.5) - jnp.maximum(x, 0) / 3,
      )
    ],
    X,
  ),
  'digits of small numbers': (
    lambda x: [jnp.log1p(x * 1e-6) * 1e6, jnp.expm1(x * 1e-6) * 1e6],
    X,
  ),
  'bools': (
    lambda x: [
      (x > 0) & (x < 1) | ~jnp.isnan(x),
      jnp.where(x > 0, x > 1, x < -1),
      jnp.any(x > 1, 1),
      jnp.all(x < 1, -1),
      (x > 0) ^ (x > 1),
    ],
    X,
  ),
  'integers': (
    lambda x, n: [n % 3, (n - 3) // 2, jax.lax.rem(n - 3, 2), n ^ 5, n * n],
    X,
    ROWS,
  ),
  'integers that wrap around': (
    lambda x, n: (n.astype(jnp.uint32) * jnp.uint32(2**31 + 12345)).astype(
      jnp.int32
    ),
    X,
    ROWS,
  ),
  'bits': (
    lambda x: jax.lax.bitcast_convert_type(
      jax.lax.bitcast_convert_type(x, jnp.int32) ^ 1, jnp.float32
    ),
    X,
  ),
  'shifts': (lambda x, n: jnp.left_shift(n, 31 - n), X, ROWS),
  'shapes': (
    lambda x: [
      x.reshape(x.shape[0], -1),
      x.reshape(-1, K),
      jnp.swapaxes(x, 0, 2),
      jnp.concatenate([x, x[:, :2]], 1),
      jnp.stack([x, x], 2),
      jnp.split(x, [1], -1),
      x[:, ::-1],
      x[:, -1],
      x[:, 1:],
      x[..., ::2],
      jnp.pad(x, [(0, 0), (1, 2), (0, 0)]),
      x[:, None] + jnp.zeros((1, 4, 1, 1)),
    ],
    X,
  ),
  'sizes': (
    lambda x: [
      jnp.arange(x.shape[1] * 2 - 1) + x.shape[0],
      jnp.sum(x, (0, 1)) / (x.shape[0] * x.shape[1]),
      jnp.broadcast_to(x[:, :, None], (*x.shape[:2], 4, K)),
      jnp.ones((x.shape[1], 2)),
    ],
    X,
  ),
  'products': (
    lambda x, w, v: [
      x @ w,
      jnp.einsum('blk,bmk->blm', x, x),
      jnp.einsum('blk,bl->bk', x, x[..., 0]),
      jnp.einsum('blk,blk->bl', x, x),
      jnp.einsum('blk,khp->blhp', x, v),
      jnp.einsum('blk,bmp->blkmp', x, x),
      jnp.einsum('blk,blk->b', x, x),
    ],
    X,
    RNG.normal(0, 1, (K, 4)).astype(np.float32),
    RNG.normal(0, 1, (K, 2, 2)).astype(np.float32),
  ),
  'reductions': (
    lambda x: [
      jnp.sum(x, 1),
      jnp.max(x, (1, 2)),
      jnp.min(x),
      jnp.prod(x, -1),
      jnp.argmax(x, 1),
      jnp.argmin(x, -1),
      jnp.cumsum(x, 1),
      jax.nn.softmax(x, 1),
      jax.lax.top_k(x, 2),
    ],
    X,
  ),
  'indices': (
    lambda x, n: [
      jnp.take(x, n, axis=1, mode='clip'),
      x[0][n],
      jnp.take_along_axis(x, n[..., None], 1),
      jnp.take_along_axis(x, n[:, None] % K, -1),
      jax.lax.dynamic_index_in_dim(x, n[0, 0], 1),
    ],
    X,
    ROWS,
  ),
  'writes': (
    lambda x, n: [
      x.at[:, 1].set(0.0),
      x.at[:, 0].add(x[:, 1]),
      x.at[:, 0].max(x[:, 1]),
      x.at[jnp.arange(x.shape[0]), n[:, 0]].set(x[:, 0] * 2),
    ],
    X,
    ROWS,
  ),
  'a scan': (
    scanned,
    X,
    RNG.normal(0, 1, (K, K)).astype(np.float32),
  ),
  'a number of steps': (
    lambda x: jax.lax.fori_loop(0, 3, lambda n, y: y * x + n, x),
    X,
  ),
  'a loop': (halved, X),
  'a branch': (
    lambda x: jax.lax.cond(
      jnp.sum(x) > 0, lambda: (x, x[:, 0] * 2), lambda: (-x, x[:, 1])
    ),
    X,
  ),
  'a function': (jax.checkpoint(jax.jit(lambda x: jnp.sin(x) * 2)), X),
  'the same output twice, and an input': (lambda x: [x + 1, x + 1, x], X),
}


@pytest.mark.parametrize('name', FUNCTIONS)
def test_an_operation(name):
  assert_same(*FUNCTIONS[name])


def test_rows_of_one_step():
  function, x, *rest = FUNCTIONS['shapes']
  assert_same(function, x[:, :2], *rest)
  function, x, *rest = FUNCTIONS['a scan']
  assert_same(function, x[:1, :1], *rest)


def test_what_has_no_form_is_named():
  with pytest.raises(errors.InputError, match="needs 'lgamma' of jax"):
    build(jax.scipy.special.gammaln, X)


def test_names_and_bytes_are_always_the_same():
  one, other = (build(*FUNCTIONS['a scan']) for _ in range(2))
  assert one.SerializeToString() == other.SerializeToString()
