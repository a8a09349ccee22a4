"""A causal self-attention model of the same size, written plainly.

    y_t = softmax(q_t K^T / sqrt(A)) V over s <= t, or t - W < s <= t

Embedding, R layers of one head of width A = 56 without norms or residuals,
head: 189,520 weights beside SimpleRNN's 189,504. The window is computed in
blocks of W queries, each with its own and the previous block's keys.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from benchmarks.harness import measure
from benchmarks.workloads import inputs
from benchmarks.workloads import programs
from benchmarks.workloads import published_model

WIDTH, HEAD_WIDTH, LAYERS = 128, 56, 2


class LanguageModel(nn.Module):
  """tokens BxL to logits BxLxV; a window of 0 sees all."""

  window: int

  @nn.compact
  def __call__(self, tokens_BxL):
    x = nn.Embed(inputs.VOCABULARY, WIDTH)(tokens_BxL)
    for _ in range(LAYERS):
      q, k, v = jnp.split(nn.Dense(3 * HEAD_WIDTH)(x), 3, -1)
      x = nn.Dense(WIDTH)(attend(q, k, v, self.window))
    return nn.Dense(inputs.VOCABULARY)(x)


def attend(
  q_BxLxA: jax.Array, k_BxLxA: jax.Array, v_BxLxA: jax.Array, window: int
) -> jax.Array:
  """Attention of one head over the past, all of it or `window` steps."""
  length = q_BxLxA.shape[1]
  if not window or window >= length:
    lower = jnp.tril(jnp.ones((length, length), bool))
    return _weighted(q_BxLxA, k_BxLxA, v_BxLxA, lower[None])
  pad = -length % window
  q, k, v = (
    jnp.pad(x, [(0, 0), (0, pad), (0, 0)]).reshape(
      x.shape[0], -1, window, x.shape[-1]
    )
    for x in (q_BxLxA, k_BxLxA, v_BxLxA)
  )
  k, v = (jnp.concatenate([_previous(x), x], 2) for x in (k, v))
  query = jnp.arange(window)[:, None] + window
  key = jnp.arange(2 * window)[None]
  seen = (key <= query) & (key > query - window)
  first = jnp.arange(q.shape[1])[:, None, None] == 0
  seen = seen[None] & ~(first & (key < window)[None])
  y = _weighted(q, k, v, seen[None])
  return y.reshape(y.shape[0], -1, y.shape[-1])[:, :length]


def _previous(x):
  return jnp.pad(x[:, :-1], [(0, 0), (1, 0), (0, 0), (0, 0)])


def _weighted(q, k, v, seen):
  scores = jnp.einsum('...ia,...ja->...ij', q, k) * q.shape[-1] ** -0.5
  weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
  return jnp.einsum('...ij,...ja->...ia', weights, v)


def train_step(
  repeats: int, batch: int = 1, length: int = 512, window: int = 0
) -> measure.Values:
  """Forward, backward and AdamW on one batch, compiled as one program."""
  model, optimizer = LanguageModel(window), optax.adamw(1e-3)
  data = published_model.make_batch(batch, length)
  init = jax.jit(lambda: model.init(jax.random.key(0), data.tokens_BxL[:, :2]))
  params = init()
  state = params, jax.jit(optimizer.init)(params)

  def loss(params):
    logits = model.apply(params, data.tokens_BxL)
    return optax.softmax_cross_entropy_with_integer_labels(
      logits, data.targets_BxL
    ).mean()

  def step(state):
    params, moments = state
    gradients = jax.grad(loss)(params)
    updates, moments = optimizer.update(gradients, moments, params)
    return (optax.apply_updates(params, updates), moments), None

  jitted = jax.jit(step, donate_argnums=0)
  program, values = programs.compile_ahead(jitted, state)
  values |= measure.with_memory(programs.step(program, state), repeats)
  values['weights'] = published_model.count(params)
  return values | {'tokens_per_second': batch * length / values['median']}
