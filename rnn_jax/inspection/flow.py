"""How much the loss at one step depends on inputs long before it.

    g_t = |d loss_T / d x_t|,  x BxLxD the embeddings that a model reads

by the distance T - t; curves.py makes of it a root mean square over rows. T is
the last step of a row that has a target, and t begins where T's document does.
In a residual stack of causal cells, what reaches x_t for t < T comes through
the recurrence alone: where the curve falls to nothing, nothing can be learnt
of what lies further back (Bengio et al., "Learning Long-Term Dependencies with
Gradient Descent Is Difficult", 1994). A picture is a row of patches whose loss
comes at the last one, x what enters its first block.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax.data import batch as batch_lib
from rnn_jax.inspection import anatomy
from rnn_jax.models import vision


@functools.partial(jax.jit, static_argnums=0)
def sums(
  task, params: dict, batch: batch_lib.Batch
) -> tuple[jax.Array, jax.Array]:
  """Sums over rows, by distance: the squares of g, and how many rows reach it.

  Args:
    task: of rnn_jax/tasks, whose objective is the loss; it runs a whole row at
      a time (remat.segment=0). Its model's layers are recurrent.
    params: its parameters.
    batch: its rows begin with a state of zeros; dropout is off.

  Returns:
    (squares_L, counts_L).
  """
  model, _ = anatomy.body(task.model, params)
  asked_BxL, begins_BxL = _rows(model, batch)
  steps_BxL = jnp.broadcast_to(
    jnp.arange(asked_BxL.shape[1])[None], asked_BxL.shape
  )
  last_Bx1 = jnp.max(jnp.where(asked_BxL, steps_BxL, -1), 1, keepdims=True)
  starts_BxL = lax.cummax(jnp.where(begins_BxL, steps_BxL, 0), axis=1)
  begin_Bx1 = jnp.take_along_axis(starts_BxL, jnp.maximum(last_Bx1, 0), 1)
  alone = steps_BxL == last_Bx1
  if batch.weights_BxL.shape != alone.shape:
    alone = jnp.any(alone, 1, keepdims=True)
  alone = batch._replace(weights_BxL=alone.astype(jnp.float32))
  gradient = _slopes(task, params, alone, asked_BxL.shape)
  squares_BxL = jnp.sum(gradient.astype(jnp.float32) ** 2, -1)
  counts_BxL = (steps_BxL >= begin_Bx1) & (steps_BxL <= last_Bx1)
  # What doesn't count is added to some distance, as zero.
  distance_BxL = jnp.maximum(last_Bx1 - steps_BxL, 0)
  zeros_L = jnp.zeros(steps_BxL.shape[1])
  return tuple(
    zeros_L.at[distance_BxL].add(jnp.where(counts_BxL, x, 0))
    for x in (squares_BxL, jnp.ones(counts_BxL.shape))
  )


def _rows(model, batch):
  """Whether a step has a loss, and whether a document begins there, BxL."""
  asked_BxL = batch.weights_BxL > 0
  if not isinstance(model, vision.Classifier):
    return asked_BxL, batch.starts_BxL > 0
  before = (0, 0), (model.steps - 1, 0)
  asked_BxL = jnp.pad(asked_BxL, before)
  return asked_BxL, jnp.zeros_like(asked_BxL)


def _slopes(task, params, batch, shape):
  """The gradient of the batch's loss by its embeddings, BxLxD."""
  model, _ = anatomy.body(task.model, params)
  entry = 'read' if isinstance(model, vision.Classifier) else 'embed'

  def loss(shift_BxLxD):
    def shifted(run, inputs, options, context):
      y = run(*inputs, **options)
      enters = context.method_name == entry
      if enters and isinstance(context.module, type(model)):
        return y + shift_BxLxD
      return y

    with nn.intercept_methods(shifted):
      _, found = task.sums(params, task.init_state(shape[0]), batch)
    return found['objective']

  width = model.config.embedding_width or model.config.width
  return jax.grad(loss)(jnp.zeros((*shape, width), model.policy.activations))
