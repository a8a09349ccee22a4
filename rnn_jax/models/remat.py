"""Rematerialization by whole layers.

With remat.layers = k, the R layers run in groups of k. Only the inputs of a
group are saved for the backward pass, which runs the group's forward pass once
more: R/k activations of BxLxD instead of all activations of R layers.
remat.keep names what is saved as well, and so isn't recomputed:

    matmuls     the result of every product with a weight
    projection  the projections of a cell's input
    recurrence  the outputs of its recurrence or attention
    hidden      the input of the last matrix of the MLP

With remat.offload these are in host memory until they are needed.

With remat.stored_layers = n, n layers that save all their activations follow
each such group: k = 1 and n = N - 1 recompute every N-th layer and no other.
With a pattern of cells, groups are of whole periods.
The numbers don't change; with k + n > 1 dropout draws other masks.
Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax

from rnn_jax.cells import base
from rnn_jax.ops import devices
from rnn_jax.system import host
from rnn_jax.system import target

HIDDEN = 'hidden'
KEEPABLE = ('matmuls', base.PROJECTED, base.KEPT, HIDDEN)


def layers(block: type[nn.Module], plan: base.Plan) -> type[nn.Module]:
  """Returns the linen class `block`, saving only what the plan names."""
  return nn.remat(block, prevent_cse=False, policy=policy(plan))


def function(run: Callable[..., Any], plan: base.Plan) -> Callable[..., Any]:
  """Returns the function `run`, saving only what the plan names."""
  return jax.checkpoint(run, prevent_cse=False, policy=policy(plan))


def all_but_gathered(
  primitive: Any, *inputs: Any, name: str | None = None, **options: Any
) -> bool:
  """A policy of `jax.checkpoint`: saves all but gathered parameters."""
  del inputs, options
  return primitive.name != 'all_gather' and name != devices.GATHERED


def policy(plan: base.Plan) -> Callable[..., Any]:
  """Returns the policy of `jax.checkpoint` inside a group of layers.

  Raises:
    InputError: the device has no host memory to offload to.
  """
  policies = jax.checkpoint_policies
  if plan.offload:
    host.check_pinned([target.device()], 'remat.offload=True')
    if 'matmuls' in plan.keep:
      return policies.offload_dot_with_no_batch_dims('device', host.PINNED)
    return policies.save_and_offload_only_these_names(
      names_which_can_be_saved=[],
      names_which_can_be_offloaded=[*plan.keep],
      offload_src='device',
      offload_dst=host.PINNED,
    )
  named = policies.save_only_these_names(*plan.keep)
  if 'matmuls' not in plan.keep:
    return named
  return policies.save_from_both_policies(
    policies.dots_with_no_batch_dims_saveable, named
  )
