"""Causal softmax attention over a window, with a state.

    y_t = sum_s softmax_s(q_t . k_s / sqrt(K)) v_s        t - W <= s <= t

Shapes: q BxLxHxK; k BxLxGxK; v BxLxGxP; y BxLxHxP. G divides H, and H / G
neighbouring heads of queries share a head of keys and values. Each query sees
itself and the W keys before it, within its own document; W >= L is full
attention. With a `top_k` the softmax is over only the k highest of these scores
and any ties with the last of them; the others get no gradient. The state is a
ring of the last W keys and values (ring.py). Positions are rotary
(`ops.rotary`) where `base` isn't 0, in all channels of a head or in the first
ones: the ring stores keys unrotated, and they are rotated when they are read.

    exact     all scores at once, stored for the backward pass: memory L^2;
              after a past, recomputed by blocks of queries
    blocked   blocked.py, memory linear in L
    cudnn     cudnn.py, on a GPU, in 16-bit formats

All return the same numbers, and a single step is the same for all of them.
Operands are multiplied in the inputs' dtype (the ring's are rounded to it);
scores, softmax and all sums are float32.
Source: Vaswani et al., "Attention Is All You Need", 2017; top-k: Gupta et al.,
"Memory-efficient Transformers via Top-k Attention", 2021; shared keys and
values: Ainslie et al., "GQA: Training Generalized Multi-Query Transformer
Models from Multi-Head Checkpoints", 2023.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax import shapes
from rnn_jax.ops import checks
from rnn_jax.ops import rotary
from rnn_jax.ops.attention import blocked as attention_blocked
from rnn_jax.ops.attention import cudnn as attention_cudnn
from rnn_jax.ops.attention import ring as attention_ring

IMPLS = ('auto', 'exact', 'blocked', 'cudnn')
# On a CPU 128 x 128 took the least time of 64 to 512 queries and keys, for 4
# heads of 32 and 8 of 64, rows of 512 to 4096 and windows of 256 and 1024: a
# block's scores stay in the cache.
QUERIES = KEYS = 128
SHORT = 128  # rows up to here are one block: 'exact' computes its scores once


@dataclasses.dataclass(frozen=True)
class Options:
  """How to attend.

  Attributes:
    impl: one of IMPLS. A named one never falls back to another.
    base: of the rotary angles; 0: no positions.
    rotated: the number of channels of a head that positions rotate; 0: all.
    scaling: of the angles; see ops/rotary.py.
    top_k: keys of a query that enter the softmax; 0: all.
    queries: in a block; 0: QUERIES. The result doesn't depend on it.
    keys: in a block; 0: KEYS. With a top_k, all that a block of queries sees.
  """

  impl: str = 'auto'
  base: float = 0.0
  rotated: int = 0
  scaling: tuple[float, ...] = ()
  top_k: int = 0
  queries: int = 0
  keys: int = 0


def attend(
  cache: attention_ring.Cache,
  q_BxLxHxK: jax.Array,
  k_BxLxGxK: jax.Array,
  v_BxLxGxP: jax.Array,
  options: Options = Options(),
  starts_BxL: jax.Array | None = None,
) -> tuple[attention_ring.Cache, jax.Array]:
  """Runs L >= 1 steps after those in the cache.

  Args:
    cache: attention_ring.Cache of the steps before, of G heads; its size is the
      window.
    q_BxLxHxK: the queries.
    k_BxLxGxK: the keys; G divides H.
    v_BxLxGxP: the values.
    options: Options.
    starts_BxL: nonzero where a document begins: it sees no earlier step.

  Returns:
    (cache, y_BxLxHxP in v's dtype).

  Raises:
    ValueError: shapes disagree, an odd number of rotated channels, L = 0, or an
      impl that isn't one of IMPLS.
    NotImplementedError: `impl` can't compute these inputs.
  """
  new = q_BxLxHxK, k_BxLxGxK, v_BxLxGxP
  _check(cache, *new, options, starts_BxL)
  steps = lax.stop_gradient(cache.steps_B).astype(jnp.int32)
  if q_BxLxHxK.shape[1] == 1 and starts_BxL is None:
    y = _one_step(cache, steps, *new, options)
    return attention_ring.write_one(cache, steps, *new[1:]), y
  impl = _choose(options, q_BxLxHxK.shape[1])
  options = dataclasses.replace(options, impl=impl)
  run = _FORMS[impl]
  arrays = cache.k_BxWxHxK, cache.v_BxWxHxP, *new
  y = run(arrays, _Marks(steps, starts_BxL), options)
  return attention_ring.write(cache, steps, *new[1:], starts_BxL), y


def attend_at_once(
  cache: attention_ring.Cache,
  q_BxLxHxK: jax.Array,
  k_BxLxGxK: jax.Array,
  v_BxLxGxP: jax.Array,
  options: Options = Options(),
) -> tuple[attention_ring.Cache, jax.Array]:
  """Returns what `attend` does, of programs that run rows of any length.

  L may be a symbolic dimension. All scores are computed at once: L^2, or
  L (W + L) after a past. Arguments and errors are those of `attend`.
  """
  new = q_BxLxHxK, k_BxLxGxK, v_BxLxGxP
  _check(cache, *new, options, None)
  steps = lax.stop_gradient(cache.steps_B).astype(jnp.int32)
  marks = _Marks(steps, None)
  # A step sees W + 1 keys at most, and the first row fewer.
  top_k = options.top_k if options.top_k <= cache.k_BxWxHxK.shape[1] else 0

  def run(past):
    line = _line((*cache[:2], *new), marks, options, past)
    return _weigh(*line[:3], _seen(line), top_k)

  y = run(True) if top_k else _by_past(marks, run)
  return attention_ring.write(cache, steps, *new[1:]), y


def _check(cache, q, k, v, options, starts):
  sizes = shapes.check(
    k_BxWxGxK=cache.k_BxWxHxK,
    v_BxWxGxP=cache.v_BxWxHxP,
    q_BxLxHxK=q,
    k_BxLxGxK=k,
    v_BxLxGxP=v,
  )
  if sizes['H'] % sizes['G']:
    raise ValueError(
      f'q_BxLxHxK has H={sizes["H"]}: the G={sizes["G"]} heads of k_BxLxGxK '
      "don't divide it"
    )
  checks.check_rows('q_BxLxHxK', q, starts)
  if options.base:
    _check_rotated(q.shape[-1], options.rotated)
  checks.check_form(options.impl, IMPLS, None)


def _check_rotated(K, rotated):
  if rotated > K:
    raise ValueError(f'rotated={rotated}: there are K={K} channels')
  if (rotated or K) % 2:
    name = 'rotated' if rotated else 'K'
    raise ValueError(
      f'{name}={rotated or K}: rotary positions need an even number'
    )


def _choose(options, length):
  if options.impl != 'auto':
    return options.impl
  # On a GPU as well, until 'cudnn' is measured to be faster there.
  impl = 'exact' if length <= SHORT else 'blocked'
  checks.log_choice('attention.attend', impl)
  return impl


def _one_step(cache, steps_B, q, k, v, options):
  """Returns y of one step, which reads the ring in place."""
  age = attention_ring.ages(steps_B, cache.k_BxWxHxK.shape[1])
  seen = jnp.pad(age <= steps_B[:, None], [(0, 0), (0, 1)], constant_values=1)
  keys, values = (
    jnp.concatenate([old.astype(x.dtype), x], 1)
    for old, x in ((cache.k_BxWxHxK, k), (cache.v_BxWxHxP, v))
  )
  q = _rotated(q, jnp.zeros((1, 1), jnp.int32), options)
  keys = _rotated(keys, jnp.pad(-age, [(0, 0), (0, 1)]), options)
  return _weigh(q, keys, values, seen[:, None], options.top_k)


def _rotated(x, position_BxL, options):
  if not options.base:
    return x
  angles = options.base, options.rotated, options.scaling
  y = rotary.rotate(x, position_BxL, *angles)
  return y.astype(x.dtype)


def _weigh(q, k, v, seen_BxLxS, top_k):
  """Returns softmax attention of the queries to the keys that they see."""
  if (shared := q.shape[2] // k.shape[2]) > 1:
    # Queries that share keys are like more steps, which see the same.
    B, L, H, _ = q.shape
    q = q.reshape(B, L, k.shape[2], shared, -1).swapaxes(2, 3)
    q = q.reshape(B, L * shared, *q.shape[3:])
    y = _weigh(q, k, v, jnp.repeat(seen_BxLxS, shared, 1), top_k)
    y = y.reshape(B, L, shared, k.shape[2], -1).swapaxes(2, 3)
    return y.reshape(B, L, H, -1)
  scores = attention_blocked.einsum('blhk,bshk->bhls', q, k)
  scores = scores * q.shape[-1] ** -0.5
  scores = jnp.where(seen_BxLxS[:, None], scores, -jnp.inf)
  weights = jax.nn.softmax(attention_blocked.keep_top(scores, top_k), -1)
  y = attention_blocked.einsum('bhls,bshp->blhp', weights.astype(v.dtype), v)
  return y.astype(v.dtype)


class _Marks(NamedTuple):
  """The number of earlier steps, and where documents begin, or None."""

  steps_B: jax.Array
  starts_BxL: jax.Array | None


def _by_past(marks, run):
  """`run(True)` where a row has a past, else `run(False)`: fewer keys."""
  any_past = jnp.any(marks.steps_B > 0)
  return lax.cond(any_past, lambda: run(True), lambda: run(False))


def _line(arrays, marks, options, past):
  """Returns the new steps as an attention_blocked.Line, after the ring's ones
  if `past`.

  `arrays` are the ring's keys and values and the new q, k, v.
  """
  *old, q, k, v = arrays
  (B, length), window = q.shape[:2], old[0].shape[1]
  begin = jnp.zeros((B, 1), jnp.int32)
  if past:
    begin = window - jnp.minimum(marks.steps_B, window)[:, None]
    k, v = (
      jnp.concatenate(
        [attention_ring.in_order(x, marks.steps_B).astype(y.dtype), y], 1
      )
      for x, y in zip(old, (k, v), strict=True)
    )
  at = jnp.arange(k.shape[1])[None]
  mine = at[:, -length:]
  if marks.starts_BxL is not None:
    begin = jnp.maximum(begin, jnp.where(marks.starts_BxL != 0, mine, 0))
    begin = lax.cummax(begin, 1)
  first = jnp.maximum(begin, mine - window)
  q, k = _rotated(q, mine, options), _rotated(k, at, options)
  return attention_blocked.Line(q, k, v, first)


def _seen(line):
  """Returns which keys each query sees, BxLxS."""
  at = jnp.arange(line.k_BxSxHxK.shape[1])[None, None]
  mine = at[..., -line.q_BxLxHxK.shape[1] :].swapaxes(1, 2)
  return (at >= line.first_BxL[..., None]) & (at <= mine)


def _exact(arrays, marks, options):
  def run(past):
    # A program reserves memory for both branches: L (W + L) would be too much.
    if past:
      return _blocked(arrays, marks, options)
    line = _line(arrays, marks, options, past)
    return _weigh(*line[:3], _seen(line), options.top_k)

  return _by_past(marks, run)


def _cudnn(arrays, marks, options):
  if options.top_k:
    attention_cudnn.refuse(
      f'returns no scores, and top_k={options.top_k} needs them'
    )
  attention_cudnn.check(*arrays[2:])

  def run(past):
    line = _repeated(_line(arrays, marks, options, past))
    if past or marks.starts_BxL is not None:
      return attention_cudnn.attend_masked(*line[:3], _seen(line))
    return attention_cudnn.attend(*line[:3], window=arrays[0].shape[1])

  return _by_past(marks, run)


def _repeated(line):
  """Returns a line with keys and values for each head of queries."""
  shared = line.q_BxLxHxK.shape[2] // line.k_BxSxHxK.shape[2]
  if shared == 1:
    return line
  k, v = (jnp.repeat(x, shared, 2) for x in line[1:3])
  return line._replace(k_BxSxHxK=k, v_BxSxHxP=v)


def _sizes(arrays, line, options):
  window, total = arrays[0].shape[1], line.k_BxSxHxK.shape[1]
  queries = min(options.queries or QUERIES, line.q_BxLxHxK.shape[1])
  keys = min(options.keys or KEYS, total)
  if options.top_k or options.impl == 'exact':
    keys = min(window + queries, total)
  return attention_blocked.Sizes(queries, keys, options.top_k)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _blocked(arrays, marks, options):
  return _blocked_forward(arrays, marks, options)[0]


def _blocked_forward(arrays, marks, options):
  def run(past):
    line = _repeated(_line(arrays, marks, options, past))
    return attention_blocked.forward(line, _sizes(arrays, line, options))

  y, z = _by_past(marks, run)
  return y, (arrays, marks, y, z)


def _blocked_backward(options, kept, dy):
  arrays, marks, *kept = kept

  def run(past):
    def lay(*arrays):
      *qkv, first = _repeated(_line(arrays, marks, options, past))
      return qkv, first

    qkv, back, first = jax.vjp(lay, *arrays, has_aux=True)
    line = attention_blocked.Line(*qkv, first)
    sizes = _sizes(arrays, line, options)
    return back(list(attention_blocked.backward(line, sizes, kept, dy)))

  # The residuals were computed by the branch that is taken here.
  return _by_past(marks, run), None


_blocked.defvjp(_blocked_forward, _blocked_backward)

_FORMS: dict[str, Callable[..., jax.Array]] = {
  'exact': _exact,
  'blocked': _blocked,
  'cudnn': _cudnn,
}
