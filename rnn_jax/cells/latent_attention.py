"""Multi-head latent attention: softmax attention to a compressed past.

    c = rms_norm(W_c x) * s        r = W_r x              C and R numbers a step
    k_h = [r; U_h c]               v_h = V_h c            q_h = W_h x
    y_h = sum_s softmax_s(q_h . k_hs / sqrt(R + K)) v_hs       o = Wo [y_1; ...]

A step sees itself and the `window` steps before it, as in `attention`; its
state has only c and r, which all heads share. A row computes the keys and
values of each head from them. A single step reads them as they are, with the
two matrices of a head moved to its query and to what it read:

    q_h . k_hs = [q_h's first R; U_h^T q_h's last K] . [r_s; c_s]
    y_h = V_h sum_s softmax_s(...) c_s

Rotary positions rotate r and the first R channels of queries; with a `rotary`
of 0 there are no positions. With a `query_rank` W_h x is U'_h rms_norm(W_q x)
with its own scale. `biases` are those of W_c, W_r, W_q and Wo.

Shapes: x BxLxD, q BxLxHx(R+K), the latent c BxLx1xC, v and y BxLxHxP, the state
BxWx1xR and BxWx1xC. There are D H (R + K) + D (C + R) + C + C H (K + P) + D H P
parameters without a query_rank. Every device of a mesh's axis `tensor` has all
heads, because they share c and r.
Source: DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient
Mixture-of-Experts Language Model", 2024; without positions: Kimi Team, "Kimi
Linear: An Expressive, Efficient Attention Architecture", 2025.
"""

import dataclasses
from typing import ClassVar
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.ops import attention
from rnn_jax.ops import devices
from rnn_jax.ops.attention import blocked as attention_blocked
from rnn_jax.ops.attention import ring as attention_ring

LOGICAL_AXES = {
  'query/kernel': 'Dx_',
  'query_down/kernel': 'Dx_',
  'query_down/bias': '_',
  'query_norm/scale': '_',
  'query_up/kernel': '_x_',
  'latent/kernel': 'Dx_',
  'latent/bias': '_',
  'latent_norm/scale': '_',
  'expand/kernel': 'Sx_',
  'output/kernel': '_xD',
  'output/bias': 'D',
}


@dataclasses.dataclass(frozen=True)
class Config(base.Config):
  """Options of the cell, section `cell` of a config."""

  heads: int = config_lib.option(4, minimum=1)
  # K, of the keys that each head has for itself.
  key_width: int = config_lib.option(32, minimum=1)
  # R, of the keys that all heads share.
  shared_width: int = config_lib.option(16, minimum=1)
  value_width: int = config_lib.option(32, minimum=1)
  kv_rank: int = config_lib.option(64, minimum=1)  # C
  query_rank: int = config_lib.option(0, minimum=0)  # 0: queries are of x
  # Earlier steps that a step sees; 0: data.length.
  window: int = config_lib.option(0, minimum=0)
  rotary: float = 10_000.0  # base of rotary positions; 0: no positions
  # Of the norms of c, and of queries.
  norm_epsilon: float = config_lib.option(1e-6, above=0)
  biases: bool = False  # of the maps to ranks, and of the output
  dropout: float = config_lib.option(0.0, below=1)  # on y

  impls: ClassVar[tuple[str, ...]] = ('auto', 'scan', 'exact', 'blocked')
  own_states: ClassVar[bool] = True
  excludes: ClassVar[tuple[str, ...]] = ('mesh.sequence!=1',)

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.rotary and self.rotary <= 1:
      self._refuse('rotary', 'give a number above 1, or 0 for no positions')
    if self.rotary and self.shared_width % 2:
      self._refuse('shared_width', 'rotary positions need an even number')
    base.check_window(self.window, config)
    super().check(config)

  def resolve(self, config: config_lib.Config) -> Self:
    """Returns the options with data.length for a window of 0."""
    return dataclasses.replace(self, window=self.window or config.data.length)


class Projected(NamedTuple):
  """The projections of the input."""

  q_BxLxHxK: jax.Array  # R channels for shared keys, then K
  shared_BxLx1xK: jax.Array  # r
  latent_BxLx1xP: jax.Array  # c


class Cell(base.Cell):
  """The cell; see the module's docstring."""

  def setup(self) -> None:
    config = self.config
    queries = config.heads * (config.shared_width + config.key_width)
    if config.query_rank:
      self.query_down = self.xavier(config.query_rank, config.biases)
      self.query_norm = self._norm()
      self.query_up = self.xavier(queries)
    else:
      self.query = self.xavier(queries)
    latent = config.kv_rank + config.shared_width
    self.latent = self.xavier(latent, config.biases)
    self.latent_norm = self._norm()
    columns = config.heads * (config.key_width + config.value_width)
    self.expand = _Kernel((config.kv_rank, columns))
    self.output = self.xavier(self.width, config.biases)
    self.drop = nn.Dropout(config.dropout)

  def _norm(self):
    return nn.RMSNorm(self.config.norm_epsilon, dtype=jnp.float32)

  def init_state(self, B: int) -> attention_ring.Cache:
    config = self.config
    return attention_ring.init_cache(
      B, config.window, 1, config.shared_width, config.kv_rank
    )

  def state_axes(self) -> attention_ring.Cache:
    return attention_ring.Cache._make(['B', 'B', 'B'])

  def project(self, x_BxLxD: jax.Array) -> Projected:
    config, shape = self.config, x_BxLxD.shape[:2]
    if config.query_rank:
      down = self.query_down(x_BxLxD)
      q = self.query_up(self.query_norm(down).astype(down.dtype))
    else:
      q = self.query(x_BxLxD)
    both = self.latent(x_BxLxD)
    latent, shared = jnp.split(both, [config.kv_rank], -1)
    latent = self.latent_norm(latent).astype(both.dtype)
    return Projected(
      q.reshape(*shape, config.heads, -1),
      shared[:, :, None],
      latent[:, :, None],
    )

  def step(
    self, state: attention_ring.Cache, u: Projected
  ) -> tuple[attention_ring.Cache, jax.Array]:
    config = self.config
    R, C = config.shared_width, config.kv_rank
    q, shared, latent = (x[:, None] for x in u)
    keys_CxHxK, values_CxHxP = self._by_head(q.dtype)
    first, rest = jnp.split(q, [R], -1)
    rest = attention_blocked.einsum('blhk,chk->blhc', rest, keys_CxHxK)
    q = jnp.concatenate([first, rest.astype(q.dtype)], -1)
    # `attend` divides by sqrt(R + C).
    q *= ((R + C) / (R + config.key_width)) ** 0.5
    past = jnp.concatenate([state.k_BxWxHxK, state.v_BxWxHxP], -1)
    _, read = attention.attend(
      state._replace(k_BxWxHxK=past),
      q,
      jnp.concatenate([shared, latent], -1),
      latent,
      self._options,
    )
    y = attention_blocked.einsum('blhc,chp->blhp', read, values_CxHxP)
    state = attention_ring.write_one(state, _steps(state), shared, latent)
    return state, y.astype(q.dtype).reshape(y.shape[0], -1)

  def recur(
    self,
    state: attention_ring.Cache,
    u: Projected,
    starts_BxL: jax.Array | None,
  ) -> tuple[attention_ring.Cache, jax.Array]:
    if self.plan.impl == 'scan':
      return base.scan_steps(self, state, u, starts_BxL)
    return self.advance(state, u, starts_BxL)

  def advance(
    self,
    state: attention_ring.Cache,
    u: Projected,
    starts_BxL: jax.Array | None,
  ) -> tuple[attention_ring.Cache, jax.Array]:
    """Runs all steps of `u` at once. Arguments are those of `recur`."""
    q, shared, latent = u
    kernel = self.expand()
    past = self._expand_past(kernel, state, q.dtype)
    k, v = self._expand(kernel, shared, latent)
    _, y = devices.current().attend(past, q, k, v, self._options, starts_BxL)
    state = attention_ring.write(
      state, _steps(state), shared, latent, starts_BxL
    )
    return state, y.reshape(*y.shape[:2], -1)

  @property
  def _options(self):
    return attention.Options(
      impl='auto' if self.plan.impl == 'scan' else self.plan.impl,
      base=self.config.rotary,
      rotated=self.config.shared_width,
      queries=self.plan.remat_every or self.plan.chunk_length or 0,
    )

  def _by_head(self, dtype):
    """Returns U and V of all heads, CxHxK and CxHxP."""
    kernel = self.expand().astype(dtype)
    kernel = kernel.reshape(len(kernel), self.config.heads, -1)
    return jnp.split(kernel, [self.config.key_width], -1)

  def _expand(self, kernel, shared_BxLx1xK, latent_BxLx1xP):
    """Returns the keys and values of each head."""
    # Not quantized: a step's form of these products isn't.
    policy = dataclasses.replace(self.policy, quantized='')
    contracted = (((2,), (0,)), ((), ()))
    both = policy.dot_general(latent_BxLx1xP[:, :, 0], kernel, contracted)
    both = both.reshape(*both.shape[:2], self.config.heads, -1)
    own, v = jnp.split(both, [self.config.key_width], -1)
    shared = jnp.broadcast_to(
      shared_BxLx1xK, (*own.shape[:3], shared_BxLx1xK.shape[-1])
    )
    return jnp.concatenate([shared.astype(own.dtype), own], -1), v

  def _expand_past(self, kernel, state, dtype):
    """Returns a cache of each head's keys and values; zeros without a past."""

    def expand():
      shared, latent = (x.astype(dtype) for x in state[:2])
      return self._expand(kernel, shared, latent)

    shapes = jax.eval_shape(expand)
    k, v = lax.cond(
      jnp.any(state.steps_B > 0),
      expand,
      lambda: tuple(jnp.zeros(x.shape, x.dtype) for x in shapes),
    )
    return attention_ring.Cache(k, v, state.steps_B)

  def emit(self, y: jax.Array) -> jax.Array:
    return self.output(self.drop(y, deterministic=not self.has_rng('dropout')))


class _Kernel(nn.Module):
  """A matrix that a row and a step multiply by in different ways."""

  shape: tuple[int, int]

  @nn.compact
  def __call__(self) -> jax.Array:
    """Returns it."""
    return self.param('kernel', nn.initializers.xavier_uniform(), self.shape)


def _steps(state):
  return lax.stop_gradient(state.steps_B).astype(jnp.int32)
