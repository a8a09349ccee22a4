"""Softmax attention by cuDNN's kernels, forward and backward, on a GPU.

Nothing falls back to them or from them: `check` refuses what they can't
compute. The kernel itself masks rows without resets or a past, with or without
a window. Several documents in one row, and steps after a past, need a mask of
B L S numbers for all heads. In training cuDNN wants its sides to be even, and
an odd one gets a step that nobody sees. Without a past that mask is below the
diagonal, and the kernel skips what is above it.
"""

from typing import NoReturn

import jax
import jax.numpy as jnp

from rnn_jax.system import target

FORMATS = ('bfloat16', 'float16')
WIDEST = 256  # channels of a head; 128 before compute capability 9.0


def check(
  q_BxLxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxP: jax.Array
) -> None:
  """Checks what these kernels can compute.

  Raises:
    NotImplementedError: they can't; the message has the reason and the remedy.
  """
  formats = {str(x.dtype) for x in (q_BxLxHxK, k_BxSxHxK, v_BxSxHxP)}
  K, P = q_BxLxHxK.shape[-1], v_BxSxHxP.shape[-1]
  device = target.platform()
  if device != 'gpu':
    refuse(f'needs a GPU, not {device}')
  if len(formats) > 1 or not formats <= {*FORMATS}:
    refuse(f'takes one of {FORMATS}, not {sorted(formats)}')
  if K != P:
    refuse(f'needs values as wide as keys, not P={P} beside K={K}')
  if K % 8 or K > WIDEST:
    refuse(f'needs K a multiple of 8, {WIDEST} at most, not {K}')


def refuse(reason: str) -> NoReturn:
  """Raises NotImplementedError with the reason and the remedy."""
  raise NotImplementedError(f"impl='cudnn' {reason}: use 'blocked' or 'exact'")


def attend(
  q_BxLxHxK: jax.Array, k_BxLxHxK: jax.Array, v_BxLxHxP: jax.Array, window: int
) -> jax.Array:
  """Returns y_BxLxHxP for rows without a past, one document each."""
  # cuDNN accepts a window only if it's shorter than the row.
  shorter = window < q_BxLxHxK.shape[1] - 1
  return jax.nn.dot_product_attention(
    q_BxLxHxK,
    k_BxLxHxK,
    v_BxLxHxP,
    is_causal=True,
    local_window_size=(window, 0) if shorter else None,
    implementation='cudnn',
  )


def attend_masked(
  q_BxLxHxK: jax.Array,
  k_BxSxHxK: jax.Array,
  v_BxSxHxP: jax.Array,
  seen_BxLxS: jax.Array,
) -> jax.Array:
  """Returns y_BxLxHxP of queries that attend where `seen_BxLxS`."""
  length = q_BxLxHxK.shape[1]
  begins = length == k_BxSxHxK.shape[1]  # after no past
  q, k, v, seen = map(_even, (q_BxLxHxK, k_BxSxHxK, v_BxSxHxP, seen_BxLxS))
  if seen.shape[2] % 2:
    seen = jnp.pad(seen, ((0, 0), (0, 0), (0, 1)))
  y = jax.nn.dot_product_attention(
    q,
    k,
    v,
    mask=jnp.expand_dims(seen, 1),
    is_causal=begins,
    implementation='cudnn',
  )
  return y[:, :length]


def _even(x_BxL_):
  """Returns x with its last step twice if the number of steps is odd."""
  if x_BxL_.shape[1] % 2 == 0:
    return x_BxL_
  return jnp.concatenate([x_BxL_, x_BxL_[:, -1:]], 1)
