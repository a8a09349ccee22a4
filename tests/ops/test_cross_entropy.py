"""The blocked loss and its gradients against the full form in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import cross_entropy
from tests.support import close

B, L, D, V = 3, 7, 4, 11
NAMES = ('x', 'kernel', 'bias', 'weights')
CLOSE = 1e-6  # measured: 2.3e-7, of the largest number of each tensor
BLOCKS = (1, B * V, 2 * B * V, 3 * B * V, 10**6)  # 1, 1, 2, 3 steps and all


def draw(seed=0):
  rng = np.random.default_rng(seed)
  values = {
    'x': rng.normal(size=(B, L, D)),
    'kernel': 2 * rng.normal(size=(D, V)),
    'bias': rng.normal(size=V),
    'weights': rng.choice([0, 0.5, 1], size=(B, L)),
  }
  values = {name: np.float32(value) for name, value in values.items()}
  return values, rng.integers(V, size=(B, L)).astype(np.int32)


def full(values, targets, smoothing=0.0, z_loss=0.0, cap=0.0):
  """float64: (sums, gradients of the loss), all logits at once."""
  x, kernel, bias, weights = (np.float64(values[name]) for name in NAMES)
  z = x @ kernel + bias
  slope = 1.0
  if cap:
    z, slope = cap * np.tanh(z / cap), 1 / np.cosh(z / cap) ** 2
  lse = np.log(np.exp(z).sum(-1))
  chosen = np.take_along_axis(z, targets[..., None], -1)[..., 0]
  nats = lse - chosen
  loss = (1 - smoothing) * nats + smoothing * (lse - z.mean(-1))
  loss = loss + z_loss * lse**2
  hits = z.argmax(-1) == targets
  probability = np.exp(z - lse[..., None]) * (1 + 2 * z_loss * lse)[..., None]
  wanted = (1 - smoothing) * np.eye(V)[targets] + smoothing / V
  d_z = (probability - wanted) * weights[..., None] * slope
  gradients = {
    'x': d_z @ kernel.T,
    'kernel': np.einsum('bld,blv->dv', x, d_z),
    'bias': d_z.sum((0, 1)),
    'weights': loss,
  }
  sums = [(weights * s).sum() for s in (loss, nats, hits)]
  return [*sums, np.float64(hits)], gradients


@functools.partial(jax.jit, static_argnums=2)
def both_ways(values, targets, options):
  def run(values):
    x, kernel, bias, weights = (values[name] for name in NAMES)
    sums = cross_entropy.sums(x, kernel, bias, targets, weights, options)
    return sums.loss, sums

  gradients, sums = jax.grad(run, has_aux=True)(values)
  return sums, gradients


assert_close = functools.partial(close.check, tolerance=CLOSE)


@pytest.mark.parametrize(
  ('block', 'smoothing', 'z_loss', 'cap'),
  (
    *((block, 0.1, 0.3, 1.5) for block in BLOCKS),
    (2 * B * V, 0.0, 0.0, 0.0),
    (2 * B * V, 0.2, 0.0, 0.0),
    (2 * B * V, 0.1, 0.3, 0.0),
  ),
)
def test_blocks_add_up_to_the_full_form(block, smoothing, z_loss, cap):
  values, targets = draw()
  options = cross_entropy.Options(smoothing, z_loss, block=block, cap=cap)
  sums, gradients = both_ways(values, targets, options)
  want, want_gradients = full(values, targets, smoothing, z_loss, cap)
  for got, number in zip(sums, want, strict=True):
    assert_close(got, np.asarray(number))
  for name in NAMES:
    assert_close(gradients[name], want_gradients[name])


@pytest.mark.slow
@pytest.mark.parametrize('share', (0.0, 0.2, 1.0))
@pytest.mark.parametrize('block', (V, 4 * V, 5 * V, 10**6))
def test_steps_without_weight_can_be_skipped(share, block):
  values, targets = draw()
  drawn = np.random.default_rng(1).random((B, L)) < share
  values['weights'] = np.where(drawn, values['weights'], 0)
  unread = (values['weights'] == 0)[..., None]
  values['x'] = np.where(unread, np.float32(30), values['x'])
  options = cross_entropy.Options(0.1, 0.3, block=block, cap=1.5, sparse=True)
  sums, gradients = both_ways(values, targets, options)
  want, want_gradients = full(values, targets, 0.1, 0.3, 1.5)
  weighted = values['weights'] != 0
  sums = sums._replace(right_BxL=sums.right_BxL * weighted)
  want[-1] *= weighted
  for got, number in zip(sums, want, strict=True):
    assert_close(got, np.asarray(number))
  for name in NAMES[:3]:
    assert_close(gradients[name], want_gradients[name])
  assert_close(
    np.where(weighted, gradients['weights'], 0),
    np.where(weighted, want_gradients['weights'], 0),
  )


def test_a_sharded_vocabulary_may_skip_steps():
  values, targets = draw()
  values['weights'][1:, 2:] = 0
  options = cross_entropy.Options(block=4 * V, axis='V', sparse=True)

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(1, 0), axis_name='V')
  def run(kernel, bias):  # of a device
    rest = targets, values['weights'], options

    def loss(*head):
      return cross_entropy.sums(values['x'], *head, *rest).loss

    return jax.value_and_grad(loss, (0, 1))(kernel, bias)

  losses, (d_kernel, d_bias) = run(
    np.reshape(values['kernel'], (D, V, 1)), values['bias'][:, None]
  )
  want, gradients = full(values, targets)
  assert_close(losses, np.full(V, want[0]))
  assert_close(d_kernel[:, :, 0].T, gradients['kernel'])
  assert_close(d_bias[:, 0], gradients['bias'])


def test_skipped_steps_cost_nothing():
  values, targets = draw()
  values['weights'][:, 2:] = 0
  options = cross_entropy.Options(block=V, sparse=True)
  arguments = (*(values[n] for n in NAMES[:3]), targets, values['weights'])
  blocks = []

  def count(*x):
    dot = cross_entropy.precision.dot

    def counted(*y):
      jax.debug.callback(lambda: blocks.append(1))
      return dot(*y)

    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(cross_entropy.precision, 'dot', counted)
      return cross_entropy.sums(*x, options)

  jax.block_until_ready(jax.jit(count)(*arguments))
  jax.effects_barrier()
  assert len(blocks) == np.count_nonzero(values['weights'])


@pytest.mark.parametrize('sparse', (False, True))
def test_values_without_gradients_are_the_same(sparse):
  values, targets = draw()
  options = cross_entropy.Options(block=2 * B * V, sparse=sparse)
  arguments = (*(values[n] for n in NAMES[:3]), targets, values['weights'])
  run = jax.jit(lambda *x: cross_entropy.sums(*x, options))
  for got, want in zip(
    run(*arguments), both_ways(values, targets, options)[0], strict=True
  ):
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_loss_of_a_mean_scales_the_gradients():
  values, targets = draw()
  options = cross_entropy.Options(0.1, 0.2, block=2 * B * V)

  @jax.jit
  @jax.grad
  def slopes(x):
    rest = (values['kernel'], values['bias'], targets, values['weights'])
    return -3 * cross_entropy.sums(x, *rest, options).loss

  want = -3 * full(values, targets, 0.1, 0.2)[1]['x']
  assert_close(slopes(values['x']), want)


def test_only_the_loss_has_gradients():
  values, targets = draw()

  def nats(x):
    rest = (values['kernel'], values['bias'], targets, values['weights'])
    return sum(map(jnp.sum, cross_entropy.sums(x, *rest)[1:]))

  assert not np.any(jax.jit(jax.grad(nats))(values['x']))


def test_huge_logits_stay_finite():
  values, targets = draw()
  values['kernel'] = values['kernel'] * np.float32(1e4)
  sums, gradients = both_ways(values, targets, cross_entropy.Options())
  assert np.isfinite(sums.loss)
  assert all(np.isfinite(g).all() for g in gradients.values())


def test_bfloat16_factors_cost_their_rounding():
  values, targets = draw()
  values['x'] = jnp.asarray(values['x'], jnp.bfloat16)
  options = cross_entropy.Options(operands='bfloat16', block=2 * B * V)
  sums, gradients = both_ways(values, targets, options)
  want, want_gradients = full(values, targets)
  assert sums.loss.dtype == gradients['kernel'].dtype == jnp.float32
  assert gradients['x'].dtype == jnp.bfloat16
  assert_close(sums.loss, np.asarray(want[0]), tolerance=1e-2)  # measured: 2e-3
  for name in NAMES:
    got = np.float64(gradients[name])
    assert_close(got, want_gradients[name], tolerance=3e-2)  # measured: 1e-2


@pytest.mark.slow
def test_neither_pass_holds_all_logits():
  B, L, D, V = 4, 256, 8, 512
  shape = jax.ShapeDtypeStruct
  arguments = (
    shape((B, L, D), jnp.float32),
    shape((D, V), jnp.float32),
    shape((V,), jnp.float32),
    shape((B, L), jnp.int32),
    shape((B, L), jnp.float32),
  )

  def bytes_held(block):
    def loss(*x):
      options = cross_entropy.Options(block=block)
      return cross_entropy.sums(*x, options).loss

    run = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))
    return run.lower(*arguments).compile().memory_analysis().temp_size_in_bytes

  logits = 4 * B * L * V
  assert bytes_held(B * L * V) > logits
  assert bytes_held(B * 16 * V) < logits / 4


@pytest.mark.parametrize(
  ('options', 'message'),
  (
    ({'label_smoothing': 1.0}, r'label_smoothing=1.0: give a number in \[0'),
    ({'z_loss': -1.0}, 'z_loss=-1.0.*give 0 or more'),
    ({'block': -1}, 'block=-1.*give 0 or more'),
    ({'cap': -1.0}, 'cap=-1.0.*give 0 or more'),
  ),
)
def test_bad_options_are_refused(options, message):
  values, targets = draw()
  arguments = (*(values[n] for n in NAMES[:3]), targets, values['weights'])
  with pytest.raises(ValueError, match=message):
    cross_entropy.sums(*arguments, cross_entropy.Options(**options))


def test_shapes_must_agree():
  values, targets = draw()
  with pytest.raises(ValueError, match='weights_BxL'):
    cross_entropy.sums(
      *(values[n] for n in NAMES[:3]), targets, values['weights'][:, 1:]
    )
