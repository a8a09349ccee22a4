"""The recurrence from its projection in C++ against a loop in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops.gla import projected as gla_projected
from tests.support import close
from tests.support import differences

pytestmark = [pytest.mark.native, pytest.mark.slow]

CLOSE = 2e-6  # of the largest number of each array; measured: 4e-7
SIMPLE = 'identity', 'sigmoid', 'identity'
MODIFIED = 'identity', 'sigmoid', 'tanh'
IMPROVED = 'silu', 'silu', 'silu'
# B, L, H, K, G, P, R, taps, activations, steps between kept states. With four
# taps, there are a bias of them and a skip, and keys are coupled. Rows and
# columns that end within a vector and within a block of them; few rows, whose
# columns are shared; segments shorter than the taps reach, and one of all.
CASES = (
  (2, 70, 1, 5, 5, 12, 0, 0, SIMPLE, 32),
  (1, 9, 2, 3, 1, 40, 3, 3, MODIFIED, 4),
  (3, 7, 2, 4, 1, 5, 5, 4, IMPROVED, 2),
  (1, 35, 1, 17, 17, 70, 70, 4, IMPROVED, 16),
  (9, 1, 1, 2, 2, 3, 3, 3, IMPROVED, 32),
  (1, 2, 1, 8, 1, 150, 0, 5, SIMPLE, 1),
)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


FUNCTIONS = {
  'identity': lambda x: x,
  'sigmoid': sigmoid,
  'tanh': np.tanh,
  'silu': lambda x: x * sigmoid(x),
}


def oracle(layout, starts, state, x, inputs, taps, taps_bias, bias, skip):
  """The module's docstring, step by step."""
  K, P, G = layout[:3]
  B, L, H, _ = x.shape
  q, k, gate, v, rest = np.split(x, np.cumsum([K, K, G, P]), -1)
  raw = np.concatenate([q, k, v], -1).reshape(B, L, -1)
  W = 1 if taps is None else len(taps)
  past = np.zeros((B, W - 1, raw.shape[-1])) if inputs is None else inputs
  steps = []
  for t in range(L):
    begins = starts[:, t] != 0
    past = np.where(begins[:, None, None], 0.0, past)
    seen = np.concatenate([past, raw[:, t, None]], 1)
    past = seen[:, 1:]
    mixed = raw[:, t] if taps is None else (seen * taps[::-1]).sum(1)
    mixed = mixed + (0 if taps_bias is None else taps_bias)
    parts = np.split(mixed.reshape(B, H, -1), [K, 2 * K], -1)
    q, k, v = (FUNCTIONS[f](x) for f, x in zip(layout[3:6], parts, strict=True))
    a = sigmoid(gate[:, t] + (0 if bias is None else bias))
    k = (1 - a) * k if layout.coupled else k
    a = np.where(begins[:, None, None], 0.0, a)
    state = a[..., None] * state + k[..., None] * v[:, :, None]
    y = np.einsum('bhk,bhkp->bhp', q, state)
    steps.append(y + (0 if skip is None else skip * v))
  return state, np.stack(steps, 1), rest


def draw(case, seed=0):
  """(layout, inputs of the oracle, starts, gradients of the outputs)."""
  B, L, H, K, G, P, R, W, activations, _ = case
  rng = np.random.default_rng(seed)
  E = H * (2 * K + P)
  inputs = (
    rng.normal(size=(B, H, K, P)),
    2 * rng.normal(size=(B, L, H, 2 * K + G + P + R)),
    rng.normal(size=(B, W - 1, E)) if W else None,
    rng.normal(size=(W, E)) if W else None,
    rng.normal(size=E) if W == 4 else None,
    rng.normal(size=(H, G)) if W else None,
    rng.normal(size=(H, P)) if W == 4 else None,
  )
  # As they are in float32, to be the same numbers in both.
  inputs = [None if x is None else np.float64(np.float32(x)) for x in inputs]
  starts = (rng.random((B, L)) < 0.2).astype(np.int32)
  starts[0, :1] = 0
  shapes = (B, H, K, P), (B, L, H, P), (B, L, H, R)
  cotangents = [np.float32(rng.normal(size=shape)) for shape in shapes]
  layout = gla_projected.Layout(K, P, G, *activations, coupled=W == 4)
  return layout, inputs, starts, cotangents


def run(layout, segment, starts, state, x, inputs, *weights):
  return gla_projected.recurrence(
    layout,
    state,
    x,
    gla_projected.Weights(*weights),
    inputs=inputs,
    starts_BxL=starts,
    segment=segment,
  )


@functools.partial(jax.jit, static_argnums=(0, 1))
def both_ways(layout, segment, starts, inputs, cotangents):
  """(outputs without residuals, outputs with residuals, gradients)."""

  def loss(inputs):
    outputs = run(layout, segment, starts, *inputs)
    return differences.total(outputs, cotangents), outputs

  gradients, outputs = jax.grad(loss, has_aux=True)(inputs)
  return run(layout, segment, starts, *inputs), outputs, gradients


def in_float32(inputs):
  return [None if x is None else np.float32(x) for x in inputs]


assert_close = functools.partial(close.check, tolerance=CLOSE)


@pytest.mark.parametrize('with_starts', (False, True))
@pytest.mark.parametrize('case', CASES, ids=str)
def test_values_and_gradients_equal_the_oracle(case, with_starts):
  layout, inputs, starts, cotangents = draw(case)
  starts = starts if with_starts else np.zeros_like(starts)
  values, outputs, gradients = both_ways(
    layout,
    case[-1],
    starts if with_starts else None,
    in_float32(inputs),
    cotangents,
  )
  wanted = oracle(layout, starts, *inputs)
  for name, a, b, want in zip('Syr', values, outputs, wanted, strict=True):
    assert_close(a, want, name=name)
    assert np.array_equal(a, b)
  differences.check(
    functools.partial(oracle, layout, starts),
    inputs,
    gradients,
    cotangents,
    scale=np.linalg.norm(cotangents[1]),
    bound=CLOSE,
  )


def test_bfloat16_is_read_and_written_around_sums_in_float32():
  layout, inputs, starts, cotangents = draw(CASES[2])
  rounded = [*inputs]
  rounded[1] = np.float64(inputs[1].astype(jnp.bfloat16))
  given = in_float32(rounded)
  exact = jax.device_get(both_ways(layout, 2, starts, given, cotangents))
  given[1] = given[1].astype('bfloat16')
  results = both_ways(layout, 2, starts, given, cotangents)
  for x, want in zip(
    jax.tree.leaves(results), jax.tree.leaves(exact), strict=True
  ):
    got, atol = np.float32(x), 0.01 * abs(want).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)
  assert results[0][1].dtype == results[2][1].dtype == jnp.bfloat16


def test_two_passes_over_a_row_equal_one():
  layout, inputs, starts, _ = draw(CASES[1])
  state, x, before, *weights = in_float32(inputs)
  raw = np.concatenate([x[..., :6], x[..., 7:47]], -1).reshape(1, 9, -1)
  starts[0, 3:6] = 0  # the inputs between are one document's
  both = jax.jit(run, static_argnums=(0, 1))
  want_state, want, _ = both(layout, 4, starts, state, x, before, *weights)
  state, y_1, _ = both(
    layout, 4, starts[:, :5], state, x[:, :5], before, *weights
  )
  state, y_2, _ = both(
    layout, 4, starts[:, 5:], state, x[:, 5:], raw[:, 3:5], *weights
  )
  assert_close(jnp.concatenate([y_1, y_2], 1), np.asarray(want))
  assert_close(state, np.asarray(want_state))


@pytest.mark.parametrize('taps_mapped', (False, True))
def test_a_mapped_axis_is_more_rows(taps_mapped):
  layout, inputs, starts, cotangents = draw(CASES[2])
  first = in_float32(inputs)
  others = in_float32(draw(CASES[2], seed=1)[1])
  if not taps_mapped:
    others[3:] = first[3:]
  axis = 0 if taps_mapped else None
  axes = [0, 0, 0, *(axis for _ in first[3:])]
  given = [
    x if axis is None else np.stack([x, y])
    for x, y, axis in zip(first, others, axes, strict=True)
  ]

  def values(*inputs):
    return both_ways(layout, 2, starts, list(inputs), cotangents)

  results = jax.device_get(jax.jit(jax.vmap(values, axes))(*given))
  for n, inputs in enumerate((first, others)):
    want = values(*inputs)
    for a, b in zip(
      jax.tree.leaves(results), jax.tree.leaves(want), strict=True
    ):
      assert_close(a[n], np.asarray(b))


@pytest.mark.parametrize(
  ('wrong', 'message'),
  (
    ({'state_BxHxKxP': (2, 1, 5, 11)}, r'state_BxHxKxP has shape'),
    ({'x_BxLxHxC': (2, 70, 1, 26)}, r'too small for Layout\(keys=5'),
    ({'gate_bias': (5,)}, 'gate_bias has shape'),
    ({'skip': (1, 5)}, 'skip has shape'),
    ({'taps_bias': (22,)}, 'given without taps'),
    ({'starts_BxL': (2, 69)}, 'starts_BxL has shape'),
    ({'taps': (3, 22)}, r'taps have shape \(3, 22\) and inputs None'),
    ({'taps': (3, 21), 'inputs': (2, 2, 21)}, r'taps have shape \(3, 21\)'),
  ),
)
def test_shapes_that_disagree_are_named(wrong, message):
  layout, inputs, _, _ = draw(CASES[0])
  given = {'state_BxHxKxP': inputs[0], 'x_BxLxHxC': inputs[1]}
  given |= {name: np.zeros(shape) for name, shape in wrong.items()}
  given = {name: np.float32(x) for name, x in given.items()}
  names = given.keys() & set(gla_projected.Weights._fields)
  weights = gla_projected.Weights(**{name: given.pop(name) for name in names})
  with pytest.raises(ValueError, match=message):
    gla_projected.recurrence(layout, weights=weights, **given)
