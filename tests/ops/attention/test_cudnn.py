"""The arguments of cuDNN, and unsupported ones; no GPU runs here.

XLA's form of the same function takes the kernels' place: the masks and windows
that are asked for must give the numbers of the other implementations.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import attention
from rnn_jax.ops.attention import cudnn as attention_cudnn
from rnn_jax.ops.attention import ring as attention_ring

B, L, H, K = 2, 10, 2, 8
CLOSE = 4e-3  # a digit of bfloat16; equal where this was measured


def draw(dtype=jnp.bfloat16, P=K):
  widths = zip(jax.random.split(jax.random.key(0), 3), (K, K, P), strict=True)
  return [jax.random.normal(key, (B, L, H, n), dtype) for key, n in widths]


@pytest.fixture(name='asked')
def _asked(monkeypatch):
  """What the kernels were asked for, computed by XLA."""
  asked, run = [], jax.nn.dot_product_attention

  def stand_in(q, k, v, **options):
    assert options.pop('implementation') == 'cudnn'
    # Masks with an odd side have no backward pass.
    assert not any(n % 2 for n in getattr(options.get('mask'), 'shape', ())[2:])
    asked.append(options)
    return run(q, k, v, implementation='xla', **options)

  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(jax.nn, 'dot_product_attention', stand_in)
  return asked


@pytest.mark.slow
@pytest.mark.parametrize(
  ('window', 'resets', 'middle'),
  (
    (3, False, 4),
    (L - 1, False, 4),
    (3, True, 4),
    (4, True, 4),
    (
      1,
      True,
      5,
    ),  # the second part sees as many keys as it has steps, made even
  ),
)
def test_masks_and_windows_are_those_of_the_other_implementations(
  asked, window, resets, middle
):
  starts = np.zeros((B, L), np.int32)
  starts[1, 4] = 1
  starts = starts if resets else None

  def run(impl, bounds):
    cache, ys = attention_ring.init_cache(B, window, H, K, K), []
    for begin, end in itertools.pairwise(bounds):
      now = (x[:, begin:end] for x in draw())
      part_starts = starts if starts is None else starts[:, begin:end]
      cache, y = attention.attend(
        cache, *now, attention.Options(impl), part_starts
      )
      ys.append(y.astype(jnp.float32))
    return jnp.concatenate(ys, 1)

  got, want = (
    jax.jit(run, static_argnums=(0, 1))(impl, bounds)
    for impl, bounds in (('cudnn', (0, middle, L)), ('exact', (0, L)))
  )
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)
  # Only rows that start here and hold one document need no mask.
  fresh = [options for options in asked if 'mask' not in options]
  masked = [options for options in asked if 'mask' in options]
  causal = {options['is_causal'] for options in masked}
  assert causal == ({True, False} if resets else {False})
  windows = {options['local_window_size'] for options in fresh}
  # Of parts of 4 and 6 steps, a window of 3 cuts something off the second.
  cuts = {None, (3, 0)} if window == 3 else {None}
  assert windows == (set() if resets else cuts)


@pytest.mark.parametrize(
  ('changes', 'reason'),
  (
    ({'dtype': jnp.float32}, "takes one of .* not \\['float32'\\]"),
    ({'P': 16}, 'values as wide as keys, not P=16 beside K=8'),
  ),
)
def test_unsupported_inputs_are_refused(asked, changes, reason):
  with pytest.raises(NotImplementedError, match=f"'cudnn' .*{reason}.*: use"):
    attention_cudnn.check(*draw(**changes))
  assert not asked


@pytest.mark.parametrize('width', (4, 12, 264))
def test_unsupported_widths_are_refused(asked, width):
  x = jnp.zeros((1, 2, 1, width), jnp.bfloat16)
  with pytest.raises(NotImplementedError, match=f'multiple of 8.*not {width}'):
    attention_cudnn.check(x, x, x)
  assert not asked


def test_without_a_gpu_it_is_refused():
  with pytest.raises(NotImplementedError, match='needs a GPU, not cpu'):
    attention_cudnn.check(*draw())
