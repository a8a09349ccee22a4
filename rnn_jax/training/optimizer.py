"""The optimizer of a config: one of `training/optimizers`, behind a clip.

An optimizer is a file with

    make(config, rate) -> optax.GradientTransformation

where `rate` is the learning rate by step. Its updates are proportional to the
rate, weight decay included, since a schedule may scale them afterwards. Weight
decay touches what `decay_mask` names, whatever the optimizer.
"""

import jax
import optax

from rnn_jax import config as config_lib

DECAYED = 'kernel'  # matrices; not embeddings, biases, norms, taps


def make(config, rate):
  """The gradient transformation of a Config."""
  options = config.optimizer
  named = config_lib.load('training/optimizers', options.name, 'optimizer.name')
  transform = named.make(config, rate)
  if not options.clip_norm:
    return transform
  return optax.chain(optax.clip_by_global_norm(options.clip_norm), transform)


def decay_mask(params):
  """True for the parameters that weight decay shrinks."""
  return jax.tree.map_with_path(lambda path, _: path[-1].key == DECAYED, params)
