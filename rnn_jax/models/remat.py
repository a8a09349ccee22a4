"""Activations that the backward pass computes again, by whole layers.

With remat.layers = k, the R layers are run in groups of k, and only what enters
a group is kept for the backward pass, which runs the group's forward pass once
more: R/k activations of BxLxD in place of R times all that a layer makes.
remat.keep names what is kept besides, and so not computed again:

    matmuls     what every product with a weight returns
    projection  what a cell reads of its input
    recurrence  what comes out of its recurrence, or its attention
    hidden      what enters the last matrix of the MLP

With remat.offload these lie in the host's memory until they are needed.
Numbers do not change; with k > 1 dropout draws other masks.
Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

import flax.linen as nn
import jax

from rnn_jax import host
from rnn_jax.cells import base
from rnn_jax.parallel import shares

HIDDEN = 'hidden'


def layers(block, plan: base.Plan):
  """Returns the linen class `block` that keeps what the plan says alone."""
  return nn.remat(block, prevent_cse=False, policy=policy(plan))


def function(run, plan: base.Plan):
  """Returns the function `run`, likewise."""
  return jax.checkpoint(run, prevent_cse=False, policy=policy(plan))


def all_but_gathered(primitive, *inputs, name=None, **options):
  """The policy that keeps all but parameters gathered from other devices."""
  del inputs, options
  return primitive.name != 'all_gather' and name != shares.GATHERED


def policy(plan: base.Plan):
  """The policy of `jax.checkpoint`: what is kept inside of layers.

  Raises:
    InputError: the device has no host memory to offload to.
  """
  policies = jax.checkpoint_policies
  if plan.offload:
    host.check_pinned(jax.local_devices(), 'remat.offload=True')
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
