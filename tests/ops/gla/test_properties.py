"""What the recurrence promises besides its values."""

import functools
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.native import library
from rnn_jax.ops import checks
from rnn_jax.ops import gla
from tests.support import loops

pytestmark = pytest.mark.slow

LONG = (
  'scan',
  'chunked',
  'associative',
  'native',
)  # those that run more than one step
NAMES = (
  'state_BxHxKxP',
  'q_BxLxHxK',
  'k_BxLxHxK',
  'v_BxLxHxP',
  'loga_BxLxHxK',
)


def draw(L, B=1, H=1, K=2, P=1, seed=0):
  """A state, q, k, v and log-decays in (-2, 0)."""
  rng = np.random.default_rng(seed)

  def normal(*shape):
    return np.float32(rng.normal(size=shape))

  loga = -np.float32(rng.uniform(0.1, 2, (B, L, H, K)))
  wide = normal(B, L, H, K), normal(B, L, H, K), normal(B, L, H, P)
  return normal(B, H, K, P), *wide, loga


# The shape of most tests.
SHAPE = {'L': 12, 'B': 2, 'H': 2, 'K': 3, 'P': 4}
EACH = pytest.mark.parametrize('impl', LONG)


@functools.cache
def both_ways(impl, read='after', starts=False):
  """A compiled function: (state, y), gradients of `sum(cotangents * them)`.

  Its arguments: cotangents, state, q, k, v, loga and, if wanted, starts.
  """
  run = functools.partial(gla.recurrence, impl=impl, chunk_length=4, read=read)

  @jax.jit
  def program(cotangents, *inputs):
    options = {'starts_BxL': inputs[5]} if starts else {}
    out, back = jax.vjp(functools.partial(run, **options), *inputs[:5])
    return out, back(cotangents)

  return program


@functools.cache
def drawn(seed=0):
  return draw(**SHAPE, seed=seed)


@functools.cache
def cotangents():
  state, *_, v, _ = draw(**SHAPE, seed=2)
  return state, v


@pytest.mark.parametrize('read', gla.READS)
@EACH
def test_the_future_does_not_reach_the_past(impl, read):
  inputs, L = drawn(), SHAPE['L']
  slopes = []
  for t in range(L):
    still, d_y = (np.zeros_like(x) for x in (inputs[0], inputs[3]))
    d_y[0, t, 0, 0] = 1
    gradients = both_ways(impl, read)((still, d_y), *inputs)[1]
    slopes.append([np.asarray(x) for x in gradients[1:]])
  of_q, *of_others = (np.stack(x) for x in zip(*slopes, strict=True))
  seen = [(x[:, 0, :, 0] != 0).any(-1) for x in (of_q, *of_others)]
  assert np.array_equal(seen[0], np.eye(L))
  first = 0 if read == 'after' else -1
  for one in seen[1:]:
    assert np.array_equal(one, np.tril(np.ones((L, L)), first))
  for x in (of_q, *of_others):  # other rows and heads
    assert not x[:, 1].any() and not x[:, :, :, 1].any()


@EACH
def test_another_document_changes_no_bit_and_gets_no_gradient(impl):
  inputs, other = drawn(), drawn(seed=1)
  starts = np.zeros((2, 12), np.int32)
  starts[:, 7] = 1
  run = both_ways(impl, starts=True)
  d_state, d_y = cotangents()
  given = (0 * d_state, np.where(starts.cumsum(1)[..., None, None], d_y, 0))
  # All before step 7 is the other document's, the initial state too.
  changed = [np.float32(1e6) * other[0]]
  for x, z in zip(inputs[1:], other[1:], strict=True):
    changed.append(np.concatenate([z[:, :7], x[:, 7:]], 1))
  (state, y), slopes = jax.device_get(run(given, *inputs, starts))
  (other_state, other_y), _ = jax.device_get(run(given, *changed, starts))
  assert np.array_equal(state, other_state)
  assert np.array_equal(y[:, 7:], other_y[:, 7:])
  assert not slopes[0].any() and not slopes[4][:, 7].any()
  for slope in slopes[1:]:
    assert not slope[:, :7].any() and slope[:, 8:].any()


@EACH
def test_no_starts_are_starts_of_zero(impl):
  zeros = np.zeros((2, 12), np.int32)
  without, _ = both_ways(impl)(cotangents(), *drawn())
  given, _ = both_ways(impl, starts=True)(cotangents(), *drawn(), zeros)
  for a, b in zip(without, given, strict=True):
    assert np.array_equal(a, b)


def test_no_start_of_a_step_is_a_start_of_zero():
  run = jax.jit(functools.partial(gla.recurrence, impl='step'))
  inputs = draw(1)
  given = run(*inputs, starts_BxL=jnp.zeros((1, 1), jnp.int32))
  for a, b in zip(run(*inputs), given, strict=True):
    assert np.array_equal(a, b)


def test_the_front_door_runs_the_step_that_cells_decode_with():
  state, *inputs = draw(1, B=2, H=2, K=3, P=4)
  run = functools.partial(gla.recurrence, impl='step')
  whole, y = jax.jit(run)(state, *inputs)
  one, y_t = jax.jit(gla.step)(state, *(x[:, 0] for x in inputs))
  assert np.array_equal(whole, one) and np.array_equal(y[:, 0], y_t)


def jaxpr(L, **options):
  inputs = draw(L)
  return jax.make_jaxpr(lambda *x: gla.recurrence(*x, **options))(*inputs)


def calls(traced):
  """The targets of custom calls in a program."""
  return set(re.findall(r'rnn_jax_\w+', str(traced)))


@pytest.mark.native
def test_auto_is_the_step_for_one_step_and_native_for_more():
  assert str(jaxpr(1, impl='auto')) == str(jaxpr(1, impl='step'))
  assert calls(jaxpr(2, impl='auto')) == {'rnn_jax_gla_forward'}
  assert calls(jaxpr(2, impl='chunked')) == set()
  assert str(jaxpr(2, impl='chunked')) != str(jaxpr(2, impl='scan'))


def test_auto_is_chunked_without_the_library(monkeypatch):
  monkeypatch.setattr(library, 'lacking', lambda: 'no compiler')
  assert str(jaxpr(2, impl='auto')) == str(jaxpr(2, impl='chunked'))
  with pytest.raises(NotImplementedError, match='no compiler'):
    jaxpr(2, impl='native')


@pytest.mark.native
def test_second_derivatives_of_native_are_refused():
  inputs = draw(3)

  def slope(state):
    return jnp.sum(
      jax.grad(lambda s: jnp.sum(gla.recurrence(s, *inputs[1:])[1] ** 2))(state)
    )

  with pytest.raises(NotImplementedError, match="use impl='scan'"):
    jax.grad(slope)(inputs[0])


@pytest.mark.native
def test_a_mapped_axis_is_more_rows_of_one_call():
  run = functools.partial(gla.recurrence, impl='native')

  def both_ways(state, *inputs):
    out, back = jax.vjp(run, state, *inputs)
    return out, back(jax.tree.map(jnp.cos, out))

  rows = [draw(13, B=2, H=2, K=3, P=4, seed=n) for n in range(3)]
  stacked = [jnp.stack(x) for x in zip(*rows, strict=True)]
  mapped = jax.jit(jax.vmap(both_ways, (0, None, 0, 0, 0)))
  results = mapped(stacked[0], rows[0][1], *stacked[2:])
  assert (
    str(jax.make_jaxpr(jax.vmap(both_ways))(*stacked)).count(
      'rnn_jax_gla_backward'
    )
    == 1
  )
  single = jax.jit(both_ways)
  for n, (state, _, *others) in enumerate(rows):
    want = single(state, rows[0][1], *others)
    for a, b in zip(
      jax.tree.leaves(results), jax.tree.leaves(want), strict=True
    ):
      assert np.array_equal(a[n], b)


@pytest.mark.native
def test_auto_logs_its_choice_once(caplog):
  checks.log_choice.cache_clear()
  with caplog.at_level(logging.INFO):
    for _ in range(2):
      jaxpr(2, impl='auto')
  logged = [record.getMessage() for record in caplog.records]
  assert (
    logged.count("gla.recurrence: impl='auto' runs 'native' in float32") == 1
  )


@pytest.mark.parametrize(
  ('impl', 'L', 'chunk_length', 'turns'),
  (
    ('scan', 130, 64, [130]),
    ('associative', 130, 64, []),
    ('step', 1, 64, []),
    ('native', 130, 64, []),
    ('chunked', 1, 64, [1]),
    ('chunked', 64, 64, [1]),
    ('chunked', 65, 64, [2]),
    ('chunked', 130, 20, [7]),
    ('chunked', 130, 1, [130]),
  ),
)
def test_a_named_implementation_is_the_one_that_runs(
  impl, L, chunk_length, turns
):
  traced = jaxpr(L, impl=impl, chunk_length=chunk_length)
  assert loops.lengths(traced) == turns


@pytest.mark.native
def test_the_backward_pass_stores_one_state_per_chunk():
  L, K, P, chunk = 128, 8, 8, 32
  inputs = draw(L, K=K, P=P)

  def kept(impl):
    run = functools.partial(gla.recurrence, impl=impl, chunk_length=chunk)
    back = jax.eval_shape(lambda *x: jax.vjp(run, *x)[1], *inputs)
    return sum(leaf.size for leaf in jax.tree.leaves(back))

  inputs_and_states = L * (3 * K + P) + L // chunk * K * P  # q, k, loga; v
  assert kept('chunked') == kept('native') == inputs_and_states
  assert kept('scan') >= L * K * P


@pytest.mark.parametrize(
  ('change', 'error', 'message'),
  (
    ({'impl': 'fast'}, ValueError, "impl='fast'.*'chunked', 'associative'"),
    ({'impl': 'step'}, NotImplementedError, "one step, not L=3: use 'chunked'"),
    ({'read': 'never'}, ValueError, "read='never'.*'after', 'before'"),
    ({'chunk_length': 0}, ValueError, 'chunk_length=0: give 1 or more'),
    ({'starts_BxL': np.zeros((1, 2))}, ValueError, r'starts_BxL.*\(1, 2\)'),
    ({'loga_BxLxHxK': np.zeros((1, 3, 1, 3))}, ValueError, 'one decay a head'),
    ({'k_BxLxHxK': np.zeros((1, 2, 1, 2))}, ValueError, 'k_BxLxGxK.*time'),
    ({'v_BxLxHxP': np.zeros((1, 3, 1, 4))}, ValueError, 'v_BxLxHxP.*value'),
    ({'q_BxLxHxK': np.zeros((1, 3, 2))}, ValueError, 'it needs 4 axes'),
  ),
)
def test_bad_arguments_are_refused_by_name(change, error, message):
  given = {**dict(zip(NAMES, draw(3), strict=True)), **change}
  arrays = [given.pop(name) for name in NAMES]
  with pytest.raises(error, match=message):
    gla.recurrence(*arrays, **given)


def test_zero_steps_are_refused():
  with pytest.raises(ValueError, match='L=0: give one step or more'):
    gla.recurrence(*draw(0))
