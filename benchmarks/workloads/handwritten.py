"""Operations written by hand, and what XLA makes of the plain ones.

Each is forward and backward of the sum of its outputs times fixed numbers.

`norm_dropout` is y = dropout(gelu(rms_norm(x))), x BxLxD in float32:

    'modules'     three modules, one after another
    'checkpoint'  the same in one `jax.checkpoint`: only x is stored
    'by hand'     a backward pass of its own, which stores x and the key

`experts` is the sum of J of E MLPs for each of T tokens, whose load is even:

    'routed'      ops/routed.py
    'ragged_dot'  `jax.lax.ragged_dot` of the sorted rows
    'one MLP'     one of J times the width: the same work without a choice

`answers` is the loss of a linear head of V outputs where one step in `every` is
predicted, as in a task whose texts end with an answer:

    'all logits'    held at once, Optax's loss
    'blocks'        ops/cross_entropy.py, of all steps
    'answers only'  the same with `sparse`
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from benchmarks.harness import measure
from benchmarks.workloads import programs
from rnn_jax.ops import cross_entropy
from rnn_jax.ops import precision
from rnn_jax.ops import routed

EPSILON = 1e-6
DENSE = (((1,), (0,)), ((), ()))


def norm_dropout(
  repeats: int, shape: list[int], form: str, rate: float
) -> measure.Values:
  """Seconds and temporaries of a form."""
  x, cotangent = _draw(shape, shape)

  def run(x, key):
    return FORMS[form](x, key, rate)

  return _measured(repeats, run, (x,), jax.random.key(1), cotangent)


def _measured(repeats, run, inputs, rest, cotangent):
  """Of run(*inputs, rest) and its gradients by `inputs`."""

  def both(inputs, rest, cotangent):
    y, back = jax.vjp(lambda *inputs: run(*inputs, rest), *inputs)
    return y, back(cotangent)

  drawn = inputs, rest, cotangent
  program, values = programs.compile_ahead(jax.jit(both), *drawn)
  values |= measure.repeat(programs.run(program, *drawn), repeats, 3)
  return values | programs.device_peak()


def modules(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
  """y, of three modules."""
  y = nn.RMSNorm(EPSILON, use_scale=False).apply({}, x)
  drop = nn.Dropout(rate, deterministic=False)
  return drop.apply({}, nn.gelu(y), rngs={'dropout': key})


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def by_hand(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
  """The same y, up to the mask's key."""
  return _by_hand_forward(x, key, rate)[0]


def _by_hand_forward(x, key, rate):
  normed, _ = _norm(x)
  return _mask(key, x.shape, rate) * nn.gelu(normed), (x, key)


def _by_hand_backward(rate, residuals, dy):
  """With n = x r, r = 1 / rms(x):  dx = r (dn - n mean(dn n))."""
  x, key = residuals
  normed, inverse = _norm(x)
  _, slope = jax.jvp(nn.gelu, (normed,), (jnp.ones_like(normed),))
  dn = _mask(key, x.shape, rate) * dy * slope
  mean = jnp.mean(dn * normed, -1, keepdims=True)
  return inverse * (dn - normed * mean), None


def _norm(x):
  inverse = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPSILON)
  return x * inverse, inverse


def _mask(key, shape, rate):
  return jax.random.bernoulli(key, 1 - rate, shape) / (1 - rate)


by_hand.defvjp(_by_hand_forward, _by_hand_backward)

FORMS = {
  'modules': modules,
  'checkpoint': jax.checkpoint(modules, static_argnums=(2,)),
  'by hand': by_hand,
}


def experts(
  repeats: int, tokens: int, widths: list[int], counts: list[int], form: str
) -> measure.Values:
  """Seconds and temporaries of a form.

  Args:
    repeats: how many are timed.
    tokens: T.
    widths: D and F.
    counts: E and J.
    form: see the module's docstring.
  """
  (D, F), (E, J) = widths, counts
  x, cotangent, up, down = _draw([tokens, D], [tokens, D], [E, D, F], [E, F, D])
  params = {'up': up * D**-0.5, 'down': down * F**-0.5}
  chosen = (jnp.arange(tokens)[:, None] + jnp.arange(J)[None]) % E
  gate = jnp.full((tokens, J), 1 / J)
  inputs = x, params, gate
  return _measured(repeats, EXPERTS[form], inputs, chosen, cotangent)


def by_routed(x, params, gate, chosen):
  """y of the blocks of each expert."""
  return routed.apply(_mlp, params, x, chosen, gate)


def by_ragged_dot(x, params, gate, chosen):
  """The same of JAX's own operation on sorted rows."""
  flat, E = chosen.reshape(-1), len(params['up'])
  order = jnp.argsort(flat)
  sizes = jnp.bincount(flat, length=E)
  rows = x[order // chosen.shape[1]]
  hidden = nn.gelu(jax.lax.ragged_dot(rows, params['up'], sizes))
  y = jax.lax.ragged_dot(hidden, params['down'], sizes)
  y = y[jnp.argsort(order)].reshape(*chosen.shape, -1)
  return jnp.sum(gate[..., None] * y, 1)


def by_one_mlp(x, params, gate, chosen):
  """Another y, of as much work."""
  J = chosen.shape[1]
  whole = {
    'up': jnp.concatenate([*params['up'][:J]], 1),
    'down': jnp.concatenate([*params['down'][:J]], 0),
  }
  return gate[:, :1] * _mlp(whole, x)


def _mlp(params, x):
  multiply = precision.POLICIES['float32'].dot_general
  return multiply(
    nn.gelu(multiply(x, params['up'], DENSE)), params['down'], DENSE
  )


EXPERTS = {
  'routed': by_routed,
  'ragged_dot': by_ragged_dot,
  'one MLP': by_one_mlp,
}


def answers(
  repeats: int, shape: list[int], every: int, form: str
) -> measure.Values:
  """Seconds and temporaries of a form.

  Args:
    repeats: how many are timed.
    shape: B, L, D and V.
    every: steps per predicted one.
    form: see the module's docstring.
  """
  B, L, D, V = shape
  x, kernel, bias = _draw([B, L, D], [D, V], [V])
  targets = jnp.arange(B * L).reshape(B, L) % V
  weights = (jnp.arange(B * L).reshape(B, L) % every == 0).astype(jnp.float32)
  inputs = x, D**-0.5 * kernel, bias

  def run(x, kernel, bias, batch):
    return LOSSES[form](x, kernel, bias, *batch)

  return _measured(repeats, run, inputs, (targets, weights), jnp.float32(1))


def loss_of_all(x, kernel, bias, targets, weights):
  """The loss, of logits held at once."""
  multiply = precision.POLICIES['float32'].dot_general
  z = multiply(x, kernel, (((2,), (0,)), ((), ()))) + bias[None, None]
  nats = optax.softmax_cross_entropy_with_integer_labels(z, targets)
  return jnp.sum(weights * nats)


def loss_in_blocks(x, kernel, bias, targets, weights, sparse=False):
  """The same of the package."""
  options = cross_entropy.Options(sparse=sparse)
  return cross_entropy.sums(x, kernel, bias, targets, weights, options).loss


LOSSES = {
  'all logits': loss_of_all,
  'blocks': loss_in_blocks,
  'answers only': functools.partial(loss_in_blocks, sparse=True),
}


def _draw(*shapes):
  """Normal numbers of each shape."""
  keys = jax.random.split(jax.random.key(0), len(shapes))
  return [jax.random.normal(*each) for each in zip(keys, shapes, strict=True)]
