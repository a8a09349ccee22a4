"""Sums of gradients over the copies of a model that send fewer bytes.

Device d of n adds what it has not sent before, the residual e, to its gradient
g, sends a compressed C of both, and keeps the rest:

    a_d = g_d + e_d        s = sum_d C(a_d)        e_d <- a_d - C(a_d)

so nothing is lost: after any number of steps, all that was summed and all the
residuals together are all the gradients, and on a constant gradient the mean of
s is off by the residuals over the number of steps.

    'int8'    Blocks of 64 numbers share a scale, max |a| / 127, and are
              rounded to int8 (`ops.int8`). Device d gets the d-th of n equal
              shards of all devices, sums it in float32, rounds the sum in the
              same way, and all gather the shards:

                s = concat_d C(sum_d' C(a_d')_d)

              What the second rounding loses, the device whose shard it is adds
              to its own residual, there. 26.6 % of the bytes of an exact sum.
              Sums of a language model's gradients were off by 1.1 %; with the
              code of `ops.blockwise` by 1.4 %, with blocks of 256 by 1.8 %.
    'top_k'   Of each leaf, the k = ceil(share * size) numbers of the largest
              magnitude and their places. All devices gather all of them, 8
              bytes each: share * n of the bytes of an exact sum, so 1 % pays
              up to some 50 devices. A number waits for about 1 / share steps,
              for which the learning rate must be small enough; momentum is the
              optimizer's, applied to s.

Leaves of fewer than 4096 numbers are summed exactly, all in one psum. The
others are put end to end to buckets of up to 4 Mi numbers; one that is larger
goes alone. For 74 leaves of 207 MiB that made 45 collectives with 260 MiB of
temporary memory; leaf by leaf it would be 293 and 126, as one array 5 and 452.

A number that is not finite, on any device, comes out as one or more that are
not, on all devices, and spoils the residual: who skips the step keeps the
residual of before.

Sources: Seide et al., "1-Bit Stochastic Gradient Descent and its Application to
Data-Parallel Distributed Training of Speech DNNs", 2014; Aji and Heafield,
"Sparse Communication for Distributed Gradient Descent", 2017; Lin et al., "Deep
Gradient Compression", 2018; Karimireddy et al., "Error Feedback Fixes SignSGD
and other Gradient Compression Schemes", 2019.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import int8
from rnn_jax.parallel import axes

KINDS = ('int8', 'top_k')
SMALL = 4096  # numbers; a leaf of fewer is summed exactly
BLOCK = 64  # numbers that share a scale
BUCKET = 2**22  # numbers that are sent together, unless a leaf has more


def init(params: Any, size: int) -> Any:
  """Returns the residual before the first step, zeros.

  Args:
    params: a tree of arrays, or of their shapes.
    size: the number of devices along the axis that is summed over.

  Returns:
    The same tree of float32 [size, ...]; row d is device d's, so the leading
    axis is to be cut over the mesh axis, and the others like the params'.
  """
  return jax.tree.map(
    lambda x: jnp.zeros((size, *x.shape), jnp.float32), params
  )


def resized(residual: Any, size: int) -> Any:
  """Returns a residual for another number of devices, of the same sum.

  Args:
    residual: a tree of float32 [any size, ...], outside of shard_map.
    size: the number of devices from now on.
  """
  return jax.tree.map(
    lambda x: jnp.repeat(jnp.sum(x, 0, keepdims=True) / size, size, 0), residual
  )


def all_reduce(
  residual: Any,
  gradients: Any,
  kind: str,
  axis: str = 'data',
  share: float = 0.01,
) -> tuple[Any, Any]:
  """Sums gradients over an axis of the mesh, inside of a jax.shard_map.

  Args:
    residual: this device's row of it, a tree of float32 [1, ...].
    gradients: a tree of arrays of the residual's shapes without the 1. As the
      residual lasts, their unit has to be the same in all steps: scaled back,
      and divided by the weights of all devices.
    kind: 'int8' or 'top_k'.
    axis: the mesh axis; with one device along it nothing is done.
    share: of a leaf's numbers, what 'top_k' sends in a step.

  Returns:
    (residual, summed), trees as before. summed is float32, and the same on all
    devices of the axis, bit for bit.

  Raises:
    ValueError: an unknown kind, a share outside of (0, 1], a residual of other
      shapes, or a leaf whose places do not fit in int32.
  """
  leaves, structure = jax.tree.flatten(gradients)
  held = structure.flatten_up_to(residual)
  _check(held, leaves, kind, share)
  if axes.size(axis) == 1:
    return residual, gradients
  carried = [
    (e[0] + g.astype(jnp.float32)).reshape(-1)
    for e, g in zip(held, leaves, strict=True)
  ]
  kept, summed = [None] * len(leaves), [None] * len(leaves)
  for bucket in _buckets([x.size for x in leaves]):
    parts = [carried[n] for n in bucket]
    results = _reduce(parts, kind, axis, share)
    for n, e, s in zip(bucket, *results, strict=True):
      kept[n] = e.reshape(held[n].shape)
      summed[n] = s.reshape(leaves[n].shape)
  return structure.unflatten(kept), structure.unflatten(summed)


def _check(held, leaves, kind, share):
  if kind not in KINDS:
    raise ValueError(f'kind = {kind!r}: take one of {", ".join(KINDS)}')
  if not 0 < share <= 1:
    raise ValueError(f'share = {share}: take more than 0 and 1 at most')
  for e, g in zip(held, leaves, strict=True):
    if e.shape != (1, *g.shape):
      raise ValueError(
        f'residual of shape {e.shape} for a gradient of shape {g.shape}: take '
        f"this device's row, {(1, *g.shape)}, of what init returns"
      )
    if g.size >= 2**31:
      raise ValueError(
        f'gradients has a leaf of {g.size} numbers: cut it over the mesh to '
        'fewer than 2**31 a device'
      )


def _buckets(sizes):
  """Numbers of leaves that go together: the small ones, and the others."""
  small = [n for n, size in enumerate(sizes) if size < SMALL]
  buckets, room = [small] if small else [], 0
  for n, size in enumerate(sizes):
    if size < SMALL:
      continue
    if size > room:
      buckets.append([])
      room = BUCKET
    buckets[-1].append(n)
    room -= size
  return buckets


def _reduce(parts, kind, axis, share):
  """(what is kept, the sums) of the flat leaves of a bucket."""
  if parts[0].size < SMALL:
    x = jnp.concatenate(parts)
    results = jnp.zeros_like(x), jax.lax.psum(x, axis)
  elif kind == 'int8':
    results = _int8(jnp.concatenate(parts), axis)
  else:
    results = _top_k(parts, axis, share)
  ends = np.cumsum([x.size for x in parts])[:-1]
  return [jnp.split(x, ends) for x in results]


def _int8(x, axis):
  """(what is kept, the sum) of a flat array, through int8 both ways."""
  devices = axes.size(axis)
  x_NxC = jnp.pad(x, (0, -x.size % (devices * BLOCK))).reshape(-1, BLOCK)
  sent = int8.quantize(x_NxC, (1,))
  kept_NxC = x_NxC - _decode(sent)
  received = [jax.lax.all_to_all(part, axis, 0, 0, tiled=True) for part in sent]
  shard_NxC = _decode(received).reshape(devices, -1, BLOCK).sum(0)
  sent = int8.quantize(shard_NxC, (1,))
  # The shard's second error is this device's: its rows of what is kept.
  begin = axes.index(axis) * len(shard_NxC)
  mine_NxC = jax.lax.dynamic_slice_in_dim(kept_NxC, begin, len(shard_NxC))
  mine_NxC += shard_NxC - _decode(sent)
  kept_NxC = jax.lax.dynamic_update_slice_in_dim(kept_NxC, mine_NxC, begin, 0)
  summed_NxC = _decode(
    [jax.lax.all_gather(part, axis, tiled=True) for part in sent]
  )
  return kept_NxC.reshape(-1)[: x.size], summed_NxC.reshape(-1)[: x.size]


def _decode(sent):
  codes_NxC, scale_Nx1 = sent
  return codes_NxC.astype(jnp.float32) * scale_Nx1


def _top_k(parts, axis, share):
  """(what is kept, the sum) of flat arrays, by their largest numbers."""
  begin, chosen = 0, []
  for x in parts:
    # Each number that is not finite goes first, NaN too.
    magnitude = jnp.where(jnp.isfinite(x), jnp.abs(x), jnp.inf)
    count = math.ceil(share * x.size)
    chosen.append(begin + jax.lax.top_k(magnitude, count)[1])
    begin += x.size
  x, places = jnp.concatenate(parts), jnp.concatenate(chosen)
  numbers, theirs = (
    jax.lax.all_gather(y, axis) for y in (x.at[places].get(), places)
  )

  def add(device, total):
    # One device after the other: with a place twice in one scatter, each
    # device would add in an order of its own.
    return total.at[theirs[device]].add(numbers[device], unique_indices=True)

  total = jax.lax.fori_loop(0, len(theirs), add, jnp.zeros_like(x))
  return x.at[places].set(0, unique_indices=True), total
