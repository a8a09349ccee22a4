"""Recurrences of several products a step in C++ against loops in float64."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

from rnn_jax.ops import gated_layers
from tests.ops import test_gated
from tests.support import differences

pytestmark = [pytest.mark.native, pytest.mark.slow]

CLOSE = 2e-6  # measured: 6e-7 of the largest number of each array
# Units that end within a vector and fill some; rows that end within a block.
SHAPES = (1, 9, 3), (5, 4, 17), (3, 3, 130), (18, 2, 8), (2, 3, 96)
KINDS = ('rhn', 1), ('rhn', 3), ('gru_before', 2)  # and how many products
EACH = pytest.mark.parametrize(('kind', 'depth'), KINDS)


def oracle(kind, depth, starts, inputs):
  """The module's docstring, step by step: (h, h of all steps)."""
  h, u, *weights = inputs
  kernels, biases = weights[:depth], [0.0, *weights[depth:]]
  steps = []
  for t in range(u.shape[1]):
    h = np.where(starts[:, t, None] != 0, 0.0, h)
    if kind == 'rhn':
      for layer, kernel in enumerate(kernels):
        a = h @ kernel + (biases[layer] if layer else u[:, t])
        c, g = np.split(a, 2, -1)
        g = test_gated.sigmoid(g)
        h = g * np.tanh(c) + (1 - g) * h
    else:
      of_gates, of_candidate = kernels
      u_r, u_z, u_n = np.split(u[:, t], 3, -1)
      of_r, of_z = np.split(h @ of_gates, 2, -1)
      r, z = test_gated.sigmoid(u_r + of_r), test_gated.sigmoid(u_z + of_z)
      n = np.tanh(u_n + (r * h) @ of_candidate)
      h = (1 - z) * n + z * h
    steps.append(h)
  return h, np.stack(steps, 1)


def draw(kind, depth, shape, seed=0):
  """[h, u, kernels and biases], starts and the gradients of the outputs."""
  (B, L, S), rng = shape, np.random.default_rng(seed)
  if kind == 'rhn':
    widths, biases = [2 * S] * depth, [(2 * S,)] * (depth - 1)
  else:
    widths, biases = [2 * S, S], []
  shapes = (
    (B, S),
    (B, L, gated_layers.KINDS[kind] * S),
    *((S, width) for width in widths),
    *biases,
  )
  sizes = 1.0, 2.0, *[S**-0.5] * len(widths), *[1.0] * len(biases)
  # As they are in float32, to be the same numbers in both.
  inputs = [
    np.float64(np.float32(size * rng.normal(size=shape)))
    for size, shape in zip(sizes, shapes, strict=True)
  ]
  starts = (rng.random((B, L)) < 0.3).astype(np.int32)
  starts[0] = 0
  cotangents = rng.normal(size=(B, S)), rng.normal(size=(B, L, S))
  return inputs, starts, [np.float32(x) for x in cotangents]


def in_float32(inputs):
  return [np.float32(x) for x in inputs]


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(kind, depth, inputs, starts=None):
  h, u, *weights = inputs
  return gated_layers.recurrence(
    kind,
    h,
    u,
    tuple(weights[:depth]),
    tuple(weights[depth:]),
    starts_BxL=starts,
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def both_ways(kind, depth, inputs, starts, cotangents):
  """(outputs without what a backward pass needs, outputs with, gradients)."""

  def loss(inputs):
    outputs = run(kind, depth, inputs, starts)
    return differences.total(outputs, cotangents), outputs

  gradients, outputs = jax.grad(loss, has_aux=True)(inputs)
  return run(kind, depth, inputs, starts), outputs, gradients


@functools.partial(jax.jit, static_argnums=(0, 1))
def all_shapes(kind, depth, drawn):
  """`both_ways` of each shape, of one program."""
  return [both_ways(kind, depth, *arguments) for arguments in drawn]


def check(kind, depth, *shapes, seed=0):
  """Values and gradients of every input against the oracle."""
  drawn = [draw(kind, depth, shape, seed) for shape in shapes]
  given = [(in_float32(x), *rest) for x, *rest in drawn]
  results = jax.device_get(all_shapes(kind, depth, given))
  for (inputs, starts, cotangents), result in zip(drawn, results, strict=True):
    outputs, kept, gradients = result
    wanted = oracle(kind, depth, starts, inputs)
    for got, other, want in zip(outputs, kept, wanted, strict=True):
      assert abs(got - want).max() <= CLOSE * abs(want).max()
      assert np.array_equal(got, other)
    differences.check(
      lambda *inputs, starts=starts: oracle(kind, depth, starts, inputs),
      inputs,
      gradients,
      cotangents,
      scale=np.linalg.norm(cotangents[1]),
      bound=CLOSE,
    )


@EACH
def test_values_and_gradients_equal_the_oracle(kind, depth):
  check(kind, depth, *SHAPES)


@hypothesis.settings(max_examples=5)
@hypothesis.given(
  kind=strategies.sampled_from(sorted(gated_layers.KINDS)),
  depth=strategies.integers(1, 5),
  shape=strategies.tuples(
    strategies.integers(1, 35),
    strategies.integers(1, 6),
    strategies.integers(1, 70),
  ),
  seed=strategies.integers(0, 9),
)
def test_drawn_shapes_equal_the_oracle(kind, depth, shape, seed):
  check(kind, depth if kind == 'rhn' else 2, shape, seed=seed)


@EACH
def test_two_parts_are_the_whole(kind, depth):
  (h, u, *weights), starts, _ = draw(kind, depth, (3, 6, 5))
  whole = run(kind, depth, (h, u, *weights), starts)
  first = run(kind, depth, (h, u[:, :3], *weights), starts[:, :3])
  second = run(kind, depth, (first[0], u[:, 3:], *weights), starts[:, 3:])
  assert np.array_equal(whole[0], second[0])
  assert np.array_equal(whole[1], np.concatenate([first[1], second[1]], 1))


@EACH
def test_a_row_is_the_same_among_any_others(kind, depth):
  """Blocks of rows follow from B and the threads; no sum depends on them."""
  (h, u, *weights), starts, d = draw(kind, depth, (19, 3, 37))

  def states_gradients(rows):
    inputs = in_float32((h[rows], u[rows], *weights))
    cotangents = [x[rows] for x in d]
    made = both_ways(kind, depth, inputs, starts[rows], cotangents)
    _, outputs, gradients = made
    return outputs, gradients[:2]

  together = states_gradients(slice(None))
  for n in (0, 7, 16, 18):
    alone = states_gradients(slice(n, n + 1))
    for x, y in zip(*map(jax.tree.leaves, (alone, together)), strict=True):
      assert np.array_equal(x[0], y[n])


@EACH
@pytest.mark.parametrize(
  'limits',
  ([-300.0, 300.0, -1e30, 1e30, 89.0, -89.0, 0.0], [0.0, np.nan, 1.0]),
)
def test_gates_reach_their_limits_and_pass_on_what_is_no_number(
  kind, depth, limits
):
  (h, _, *weights), *_ = draw(kind, depth, (1, 1, len(limits)))
  u = np.array(limits * gated_layers.KINDS[kind])[None, None]
  inputs = h, u, *(0 * x for x in weights)
  outputs = run(kind, depth, inputs)
  with np.errstate(over='ignore'):
    wanted = oracle(kind, depth, np.zeros((1, 1)), inputs)
  for got, want in zip(outputs, wanted, strict=True):
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-30)


def test_inputs_of_16_bits_are_read_in_float32():
  for kind, depth in KINDS:
    (h, u, *weights), *_ = draw(kind, depth, (2, 3, 5))
    u = u.astype(jnp.bfloat16)
    state, y = run(kind, depth, (h, u, *weights))
    inputs = h, np.float64(u), *weights
    want, _ = oracle(kind, depth, np.zeros((2, 3)), inputs)
    assert y.dtype == jnp.bfloat16 and state.dtype == jnp.float32
    test_gated.assert_close(state, want)


@EACH
@pytest.mark.parametrize('mapped_weights', (False, True))
def test_a_mapped_axis_is_rows_or_one_call_after_the_other(
  kind, depth, mapped_weights
):
  drawn = [draw(kind, depth, (2, 3, 5), seed) for seed in (1, 2)]
  starts = jnp.stack([starts for _, starts, _ in drawn])
  inputs = [
    jnp.stack(x) for x in zip(*(in_float32(x) for x, *_ in drawn), strict=True)
  ]
  axes = [0, 0, *[0 if mapped_weights else None] * (len(inputs) - 2)]
  given = [x if a == 0 else x[0] for x, a in zip(inputs, axes, strict=True)]

  @jax.jit
  def gradients(inputs, starts):
    def loss(inputs):
      return jnp.sum(jnp.sin(run(kind, depth, inputs, starts)[1]))

    return jax.grad(loss)(inputs)

  got = jax.jit(jax.vmap(gradients, (axes, 0)))(given, starts)
  for n in range(2):
    row = [x[n] if a == 0 else x for x, a in zip(given, axes, strict=True)]
    want = gradients(row, starts[n])
    for x, y in zip(got, want, strict=True):
      test_gated.assert_close(x[n], np.asarray(y))


@pytest.mark.parametrize(
  ('kind', 'changes', 'message'),
  (
    ('elman', {}, "kind='elman': choose one of"),
    ('rhn', {'kernels': ()}, "kernels has 0 arrays with kind='rhn': give 1"),
    ('rhn', {'biases': ()}, "biases has 0 arrays with kind='rhn': give 1"),
    ('gru_before', {}, "biases has 1 arrays with kind='gru_before': give 0"),
    ('rhn', {'biases': (jnp.zeros(3),)}, r'biases\[0\] has shape \(3,\)'),
    ('rhn', {'kernels': (jnp.zeros((3, 9)),) * 2}, r'kernels\[0\] has shape'),
    (
      'gru_before',
      {
        'u_BxLx_': jnp.zeros((2, 4, 9)),
        'kernels': (jnp.zeros((3, 6)),) * 2,
        'biases': (),
      },
      r'kernels\[1\] has shape \(3, 6\), not \(3, 3\)',
    ),
    ('rhn', {'h_BxS': jnp.zeros((1, 3))}, 'h_BxS has shape'),
    ('rhn', {'u_BxLx_': jnp.zeros((2, 4, 9))}, 'u_BxLx_ has shape'),
    ('rhn', {'u_BxLx_': jnp.zeros((2, 0, 6))}, 'u_BxLx_ has L=0'),
    ('rhn', {'starts_BxL': jnp.zeros((2, 3))}, 'starts_BxL has shape'),
  ),
)
def test_what_does_not_fit_is_refused(kind, changes, message):
  inputs = {
    'h_BxS': jnp.zeros((2, 3)),
    'u_BxLx_': jnp.zeros((2, 4, 6)),
    'kernels': (jnp.zeros((3, 6)),) * 2,
    'biases': (jnp.zeros(6),),
  }
  with pytest.raises(ValueError, match=message):
    gated_layers.recurrence(kind, **inputs | changes)
