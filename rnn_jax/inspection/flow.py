"""How much the loss at one step depends on inputs long before.

    g_t = |d loss_T / d x_t|,  x BxLxD the embeddings that a model reads

by the distance T - t; curves.py computes its root mean square over rows. T is
the last step of a row with a target, and t begins with T's document. In a
residual stack of causal cells, only the recurrence carries gradient to x_t for
t < T: beyond the distance where the curve vanishes, nothing can be learned
(Bengio et al., "Learning Long-Term Dependencies with Gradient Descent Is
Difficult", 1994). An image is a row of patches with its loss at the last one,
and x what enters the first block.
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.inspection import anatomy
from rnn_jax.models import series
from rnn_jax.models import series_labels
from rnn_jax.models import vision


@functools.partial(jax.jit, static_argnums=0)
def sums(
  task: Any, params: dict, batch: batch_lib.Batch
) -> tuple[jax.Array, jax.Array]:
  """Sums the squares of g and counts the rows that reach, by distance.

  Args:
    task: of rnn_jax/tasks; its objective is the loss. It runs a whole row at a
      time (remat.segment=0), and its model's layers are recurrent.
    params: its parameters.
    batch: its rows begin with a zero state; dropout is off.

  Returns:
    (squares_L, counts_L).
  """
  model, _ = anatomy.body(task.model, params)
  has_loss_BxL, begins_BxL = _rows(model, batch)
  steps_BxL = jnp.broadcast_to(
    jnp.arange(has_loss_BxL.shape[1])[None], has_loss_BxL.shape
  )
  last_Bx1 = jnp.max(jnp.where(has_loss_BxL, steps_BxL, -1), 1, keepdims=True)
  starts_BxL = lax.cummax(jnp.where(begins_BxL, steps_BxL, 0), axis=1)
  begin_Bx1 = jnp.take_along_axis(starts_BxL, jnp.maximum(last_Bx1, 0), 1)
  weights = steps_BxL == last_Bx1
  if batch.weights_BxL.shape != weights.shape:
    weights = jnp.any(weights, 1, keepdims=True)
  batch = batch._replace(weights_BxL=weights.astype(jnp.float32))
  gradient = _gradients(task, params, batch, steps_BxL.shape)
  squares_BxL = jnp.sum(gradient.astype(jnp.float32) ** 2, -1)
  counts_BxL = (steps_BxL >= begin_Bx1) & (steps_BxL <= last_Bx1)
  # What doesn't count is added as zero to some distance.
  distance_BxL = jnp.maximum(last_Bx1 - steps_BxL, 0)
  zeros_L = jnp.zeros(steps_BxL.shape[1])
  return tuple(
    zeros_L.at[distance_BxL].add(jnp.where(counts_BxL, x, 0))
    for x in (squares_BxL, jnp.ones(counts_BxL.shape))
  )


def _rows(model, batch):
  """Returns if a step has a loss, and if a document begins there, BxL."""
  has_loss_BxL = batch.weights_BxL > 0
  if not isinstance(model, vision.Classifier):
    return has_loss_BxL, batch.starts_BxL > 0
  before = (0, 0), (model.steps - 1, 0)
  has_loss_BxL = jnp.pad(has_loss_BxL, before)
  return has_loss_BxL, jnp.zeros_like(has_loss_BxL)


def _gradients(task, params, batch, shape):
  """Returns the gradient of the batch's loss by its embeddings, BxLxD."""
  model, _ = anatomy.body(task.model, params)
  whole = vision.Classifier, series.Forecaster, series_labels.Labeller
  reads = isinstance(model, whole)
  entry = 'read' if reads else 'embed'

  def loss(shift_BxLxD):
    def shifted(run, inputs, options, context):
      y = run(*inputs, **options)
      enters = context.method_name == entry
      if enters and isinstance(context.module, type(model)):
        return y + shift_BxLxD
      return y

    with nn.intercept_methods(shifted):
      objective, _ = task.loss(params, task.init_state(shape[0]), batch)
    return objective

  width = model.config.embedding_width or model.config.width
  return jax.grad(loss)(jnp.zeros((*shape, width), model.policy.activations))
