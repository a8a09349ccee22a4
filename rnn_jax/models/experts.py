"""Experts: E MLPs in the place of one, of which each token runs J.

    p = softmax(W_router x)                               in float32
    y = sum of g_e mlp_e(x) over the J experts e of the largest p
    g_e = p_e / (sum of these p)                          p_e where J = 1

With J = 1 a division would make g = 1, and the router had no gradient. Without
model.experts.normalized g_e = p_e for any J. Tokens are routed one by one, and
none is dropped (ops/routed.py), so a text is read as it is written. Padding
takes no other token's place.

With scores='sigmoid' p = sigmoid(W_router x), which don't sum to 1. With a
`correction` the J experts are those of the largest p + b, and g is still of p:
b has no gradient and stays as it is. Of several `groups` of experts a token
first chooses some, those with the largest sums of their two largest p + b, and
then J experts of these groups. All g are times `gate_scale`.

With model.experts.shared_width every token also runs one expert that it doesn't
choose, beside those above, whose gate is of one number, or 1 without a
`shared_gate`:

    y = y + sigmoid(w x) mlp_shared(x)

The first `dense_layers` have an MLP of `dense_width` instead (period.py).

A loss keeps the experts busy. For n real tokens of a row and f_e, the share of
their n J choices that are e,

    balance = E sum_e f_e (mean over the n tokens of p_e)        1 where even

with p divided by their sum where that isn't 1,
added up over layers. It is that of each row, times the weight of its
predictions: so it adds up over rows, as the task's loss does, and doesn't
depend on how a batch is split over devices or in time.

A device may have some of the experts, and some of their columns; of the shared
one it has all, or some of its columns.
Sources: Shazeer et al., "Outrageously Large Neural Networks: The
Sparsely-Gated Mixture-of-Experts Layer", 2017; Fedus et al., "Switch
Transformers: Scaling to Trillion Parameter Models with Simple and Efficient
Sparsity", 2021 (J = 1, the balance); Liu et al., "DeepSeek-V3 Technical
Report", 2024 (the balance of each row, sigmoids, b, groups); Qwen Team,
"Qwen1.5-MoE: Matching 7B Model Performance with 1/3 Activated Parameters", 2024
(the shared expert).
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.models import mlp
from rnn_jax.ops import devices
from rnn_jax.ops import precision

PyTree = Any
Sums = dict[str, jax.Array]
ROUTES = 'routes'  # the collection of what routers choose
SCORES = ('softmax', 'sigmoid')
METRICS = ('balance', 'busiest_expert', 'idle_experts')
LOGICAL_AXES = {
  'experts/router/kernel': 'Dx_',
  'experts/router_bias': '_',
  'experts/up/kernel': 'ExDxF',
  'experts/gate/kernel': 'ExDxF',
  'experts/down/kernel': 'ExFxD',
  'experts/shared_gate/kernel': 'Dx_',
  'experts/shared/up/kernel': 'DxF',
  'experts/shared/gate/kernel': 'DxF',
  'experts/shared/down/kernel': 'FxD',
}


class Experts(nn.Module):
  """See the module's docstring."""

  config: config_lib.Model
  policy: precision.Policy

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array) -> jax.Array:
    y_BxLxD = self._run_chosen(x_BxLxD)
    if self.config.experts.shared_width:
      y_BxLxD += self._run_shared(x_BxLxD)
    return y_BxLxD

  def _run_chosen(self, x_BxLxD):
    current, D = devices.current(), x_BxLxD.shape[-1]
    chosen_BxLxJ, gate_BxLxJ = self._route(x_BxLxD)
    x = x_BxLxD
    columns = current.shards('F')
    if columns > 1:
      x, gate_BxLxJ = current.tp_copy(x), current.tp_copy(gate_BxLxJ)
    x_TxD, chosen_TxJ, gate_TxJ = (
      current.from_rows(x.reshape(-1, x.shape[-1]))
      for x in (x, chosen_BxLxJ, gate_BxLxJ)
    )
    shared = current.shards('E')
    E = self.config.experts.count // shared
    y_TxD = current.routed(
      functools.partial(_run, self.config, self.policy),
      self._kernels(E, D, self.config.mlp_width // columns),
      x_TxD,
      chosen_TxJ - E * current.shard('E'),
      gate_TxJ,
      shared,
    )
    y = current.to_rows(y_TxD).reshape(x_BxLxD.shape)
    y = y.astype(self.policy.activations)
    return current.tp_reduce(y) if columns > 1 else y

  def _run_shared(self, x_BxLxD):
    width = self.config.experts.shared_width
    config = dataclasses.replace(self.config, mlp_width=width)
    y_BxLxD = mlp.Mlp(config, self.policy, name='shared')(x_BxLxD)
    if not self.config.experts.shared_gate:
      return y_BxLxD
    gate_BxLx1 = jax.nn.sigmoid(self._scores(1, 'shared_gate', x_BxLxD))
    return gate_BxLx1.astype(y_BxLxD.dtype) * y_BxLxD

  def _scores(self, width, name, x_BxLxD):
    """Returns a product in float32."""
    dense = nn.Dense(
      width,
      use_bias=False,
      dtype=jnp.float32,
      dot_general=precision.POLICIES['float32'].dot_general,
      name=name,
    )
    return dense(x_BxLxD)

  def _route(self, x_BxLxD):
    options = self.config.experts
    logits_BxLxE = self._scores(options.count, 'router', x_BxLxD)
    if options.scores == 'softmax':
      p_BxLxE = shares_BxLxE = jax.nn.softmax(logits_BxLxE)
    else:
      p_BxLxE = jax.nn.sigmoid(logits_BxLxE)
      shares_BxLxE = p_BxLxE / _sum(p_BxLxE)
    chosen_BxLxJ = self._choose(p_BxLxE)
    gate_BxLxJ = jnp.take_along_axis(p_BxLxE, chosen_BxLxJ, -1)
    if options.per_token > 1 and options.normalized:
      gate_BxLxJ /= _sum(gate_BxLxJ)
    gate_BxLxJ *= options.gate_scale
    if not self.is_initializing():
      self.sow(ROUTES, 'p', shares_BxLxE)  # if that is mutable
      self.sow(ROUTES, 'chosen', chosen_BxLxJ)
    return chosen_BxLxJ, gate_BxLxJ

  def _choose(self, p_BxLxE):
    """Returns the experts of each token."""
    options = self.config.experts
    if options.correction:
      zeros = nn.initializers.zeros
      p_BxLxE += self.param('router_bias', zeros, (options.count,))[None, None]
    if (groups := options.groups) > 1:
      by_group = p_BxLxE.reshape(*p_BxLxE.shape[:2], groups, -1)
      best_BxLxG = jnp.sum(jax.lax.top_k(by_group, 2)[0], -1)
      _, kept = jax.lax.top_k(best_BxLxG, options.groups_per_token)
      is_kept_BxLxG = jnp.any(jax.nn.one_hot(kept, groups, dtype=bool), -2)
      by_group = jnp.where(is_kept_BxLxG[..., None], by_group, -jnp.inf)
      p_BxLxE = by_group.reshape(p_BxLxE.shape)
    return jax.lax.top_k(jax.lax.stop_gradient(p_BxLxE), options.per_token)[1]

  def _kernels(self, E, D, F):
    names = ('up', 'gate') if self.config.mlp in mlp.GATED else ('up',)
    return {name: Kernel((E, D, F), name=name)() for name in names} | {
      'down': Kernel((E, F, D), name='down')()
    }


def _sum(p):
  """Returns a sum to divide by: all sigmoids may be 0."""
  return jnp.sum(p, -1, keepdims=True) + 1e-20


class Kernel(nn.Module):
  """The matrices of all experts."""

  shape: tuple[int, int, int]

  @nn.compact
  def __call__(self) -> jax.Array:
    """Returns them, each initialized as that of an MLP."""
    init = nn.initializers.lecun_normal(batch_axis=(0,))
    return self.param('kernel', init, self.shape)


def _run(config, policy, kernels, x_CxD):
  """Returns the outputs of one expert."""

  def dense(x, name):
    x, kernel = (x.astype(policy.activations) for x in (x, kernels[name]))
    return policy.dot_general(x, kernel, (((1,), (0,)), ((), ())))

  units = mlp.hidden(config, functools.partial(dense, x_CxD))
  return dense(units, 'down')


def apply(
  model: nn.Module, params: PyTree, *args: Any, **options: Any
) -> tuple[Any, PyTree]:
  """Returns (result of `model.apply`, what its routers chose)."""
  return model.apply({'params': params}, *args, mutable=[ROUTES], **options)


def with_load(
  sums: Sums,
  routes: PyTree,
  weights_BxL: jax.Array,
  bounds_BxL: jax.Array,
  options: config_lib.Experts,
) -> Sums:
  """Returns a task's sums with the balance of its experts.

  Args:
    sums: of the rows; 'weight' is that of their predictions.
    routes: as `apply` returns them.
    weights_BxL: of the predictions, whose sum is 'weight'.
    bounds_BxL: weights up to whose last positive one a row's steps count; Bx1
      for all or none of them.
    options: section `model.experts`.

  Returns:
    The sums, 'objective' with the balance. Those of METRICS are weighted like
    the predictions, and means over layers: the balance, how many times its even
    share the busiest expert of a row has, and the share of experts without a
    token.
    Without experts, `sums` as they are.
  """
  if not options.count:
    return sums
  p_RxBxLxE, chosen_RxBxLxJ = (
    _leaves(routes, name) for name in ('p', 'chosen')
  )
  R, B, L, E = p_RxBxLxE.shape
  over_time = devices.current().over_time
  real_BxL = jnp.broadcast_to(real(bounds_BxL), (B, L))
  real_1xBxLx1 = real_BxL[None, :, :, None].astype(jnp.float32)
  count_B = jnp.maximum(over_time(jnp.sum(real_BxL, 1, dtype=jnp.float32)), 1)
  is_chosen_RxBxLxE = jnp.sum(jax.nn.one_hot(chosen_RxBxLxJ, E), 3)
  load_RxBxE = over_time(jnp.sum(real_1xBxLx1 * is_chosen_RxBxLxE, 2))
  # In units of an even share.
  load_RxBxE *= E / (count_B[None, :, None] * options.per_token)
  mean_RxBxE = jnp.sum(real_1xBxLx1 * p_RxBxLxE, 2) / count_B[None, :, None]
  weight_B = over_time(jnp.sum(weights_BxL, 1))
  balance = jnp.sum(load_RxBxE * mean_RxBxE * weight_B[None, :, None])
  shared_B = weight_B / (R * devices.current().time_shards)
  return sums | {
    'objective': sums['objective'] + options.balance * balance,
    'balance': balance / R,
    'busiest_expert': jnp.sum(jnp.max(load_RxBxE, 2) * shared_B[None]),
    'idle_experts': jnp.sum(jnp.mean(load_RxBxE == 0, 2) * shared_B[None]),
  }


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
  """Returns METRICS from total sums, means over predictions; {} if none."""
  return {name: sums[name] / sums['weight'] for name in METRICS if name in sums}


def real(weights_BxL: jax.Array) -> jax.Array:
  """Returns if a step is at or before its row's last prediction, BxL."""
  current = devices.current()
  real_BxL = jax.lax.cummax(weights_BxL, axis=1, reverse=True) > 0
  if (shards := current.time_shards) == 1:
    return real_BxL
  own_N = jnp.arange(shards) == current.time_shard
  any_BxN = current.over_time(real_BxL[:, :1] * own_N[None].astype(jnp.float32))
  later_BxN = any_BxN * (jnp.arange(shards) > current.time_shard)[None]
  return real_BxL | (jnp.sum(later_BxN, 1, keepdims=True) > 0)


def _leaves(routes, name):
  """Returns what all layers sowed under a name, stacked over layers."""
  leaves = [
    x.reshape(-1, *x.shape[-3:])
    for path, x in jax.tree.leaves_with_path(routes)
    if path[-2].key == name
  ]
  return jnp.concatenate(leaves)
