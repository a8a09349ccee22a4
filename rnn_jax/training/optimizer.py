"""AdamW behind a clip by global norm.

Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
"""

import jax
import optax

DECAYED = 'kernel'  # matrices; not embeddings, biases, norms, taps


def make(config, schedule):
  """The gradient transformation of a Config."""
  options = config.optimizer
  adamw = optax.adamw(
    schedule,
    b1=options.b1,
    b2=options.b2,
    eps=options.eps,
    weight_decay=options.weight_decay,
    mask=decay_mask,
  )
  if not options.clip_norm:
    return adamw
  return optax.chain(optax.clip_by_global_norm(options.clip_norm), adamw)


def decay_mask(params):
  """True for the parameters that weight decay shrinks."""
  return jax.tree.map_with_path(lambda path, _: path[-1].key == DECAYED, params)
