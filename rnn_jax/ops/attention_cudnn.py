"""Softmax attention by cuDNN's kernels, forward and backward, on a GPU.

Nothing falls back to them or from them: `check` says what they can't do. Rows
without resets or a past are masked by the kernel itself, be it all of the past
or a window; documents in one row, and steps behind a past, by a matrix of B L S
numbers that all heads share, whose sides cuDNN wants even in training.
"""

import jax
import jax.numpy as jnp

FORMATS = ('bfloat16', 'float16')
WIDEST = 256  # channels of a head; 128 before compute capability 9.0


def check(q_BxLxHxK, k_BxSxHxK, v_BxSxHxP):
  """Checks what these kernels can compute.

  Raises:
    NotImplementedError: not this; the message has the reason and the remedy.
  """
  formats = {str(x.dtype) for x in (q_BxLxHxK, k_BxSxHxK, v_BxSxHxP)}
  K, P = q_BxLxHxK.shape[-1], v_BxSxHxP.shape[-1]
  device = jax.default_backend()
  if device != 'gpu':
    refuse(f'needs a GPU, not {device}')
  if len(formats) > 1 or not formats <= {*FORMATS}:
    refuse(f'takes one of {FORMATS}, not {sorted(formats)}')
  if K != P:
    refuse(f'needs values as wide as keys, not P={P} beside K={K}')
  if K % 8 or K > WIDEST:
    refuse(f'needs K a multiple of 8, {WIDEST} at most, not {K}')


def refuse(reason):
  """Raises NotImplementedError with the reason and the remedy."""
  raise NotImplementedError(f"impl='cudnn' {reason}: use 'blocked' or 'exact'")


def attend(q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, window):
  """y_BxLxHxP of rows that begin here, one document each."""
  # cuDNN takes a window for one only where it cuts something off.
  shorter = window < q_BxLxHxK.shape[1] - 1
  return jax.nn.dot_product_attention(
    q_BxLxHxK,
    k_BxLxHxK,
    v_BxLxHxP,
    is_causal=True,
    local_window_size=(window, 0) if shorter else None,
    implementation='cudnn',
  )


def attend_masked(q_BxLxHxK, k_BxSxHxK, v_BxSxHxP, seen_BxLxS):
  """y_BxLxHxP of the keys that are seen."""
  return jax.nn.dot_product_attention(
    q_BxLxHxK,
    k_BxSxHxK,
    v_BxSxHxP,
    mask=jnp.expand_dims(seen_BxLxS, 1),
    implementation='cudnn',
  )
