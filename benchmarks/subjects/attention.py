"""A causal self-attention model of the same size, written plainly.

    y_t = softmax(q_t K^T / sqrt(A)) V over s <= t, or t - W < s <= t

Embedding, R layers of one head of width A = 56 without norms or residuals,
head: 189,520 weights beside SimpleRNN's 189,504. The window is computed in
blocks of W queries, each with its own and the previous block's keys.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from benchmarks import measure
from benchmarks.subjects import inputs
from benchmarks.subjects import models
from rnn_jax import host


@dataclasses.dataclass(frozen=True)
class Options:
  """Sizes; `window` 0 sees all."""

  window: int = 0
  width: int = 128
  head_width: int = 56
  layers: int = 2


class LanguageModel(nn.Module):
  """tokens BxL to logits BxLxV."""

  options: Options

  @nn.compact
  def __call__(self, tokens_BxL):
    options = self.options
    x = nn.Embed(inputs.VOCABULARY, options.width)(tokens_BxL)
    for _ in range(options.layers):
      q, k, v = jnp.split(nn.Dense(3 * options.head_width)(x), 3, -1)
      x = nn.Dense(options.width)(attend(q, k, v, options.window))
    return nn.Dense(inputs.VOCABULARY)(x)


def attend(q_BxLxA, k_BxLxA, v_BxLxA, window):
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


def train_step(repeats, batch=1, length=512, window=0):
  """Forward, backward and AdamW on one batch, compiled as one program."""
  model, optimizer = LanguageModel(Options(window)), optax.adamw(1e-3)
  data = models.make_batch(batch, length)
  init = jax.jit(lambda: model.init(jax.random.key(0), data.tokens_BxL[:, :2]))
  params = init()
  state = params, jax.jit(optimizer.init)(params)

  def loss(params):
    logits = model.apply(params, data.tokens_BxL)
    return optax.softmax_cross_entropy_with_integer_labels(
      logits, data.targets_BxL
    ).mean()

  def step(params, optimizer_state):
    gradients = jax.grad(loss)(params)
    updates, optimizer_state = optimizer.update(
      gradients, optimizer_state, params
    )
    return optax.apply_updates(params, updates), optimizer_state

  program, values = measure.compile_program(
    jax.jit(step, donate_argnums=(0, 1)), *state
  )
  memory = host.Memory()

  def run():
    nonlocal state
    state = models.wait(program(*state))

  values |= measure.repeat(run, repeats) | memory.values()
  values['weights'] = models.count(params)
  return values | {'tokens_per_second': batch * length / values['median']}
