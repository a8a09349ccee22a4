"""The decoding step of a model that writes text, as an exported program.

    (state, logits_BxV) = step(params, state, token_B)

The same step reads prompts, one token at a time; the state is constant in size,
or has the size of the attention window.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import layers
from rnn_jax.interop import program as program_lib
from rnn_jax.interop import standalone
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib


def make(
  bundle: bundle_lib.Bundle, batch_size: int, platforms: tuple[str, ...]
) -> program_lib.Program:
  """Returns the program of a model's decoding step."""
  model = layers.for_inference(
    language_model.from_config(bundle.config, bundle.tokenizer.size)
  )
  params = bundle_lib.flat(layers.unstack(bundle.params))
  state, exported = _export(model, params, batch_size, platforms)
  options = bundle.config.model
  learned = options.positions == 'learned'
  return program_lib.Program(
    'step',
    exported,
    {'parameters': params, 'state': state},
    {
      'vocabulary': bundle.tokenizer.size,
      'boundary': bundle.tokenizer.boundary,  # before a document
      'longest': options.max_positions if learned else 0,
    },
    ('params', 'state', 'token_B'),
    ('state', 'logits_BxV'),
    (standalone.__file__, 'decode.py'),
  )


def _export(model, params, batch_size, platforms):
  """Returns (the first state by name, the exported step)."""
  init = jax.jit(lambda: model.apply({}, batch_size, method='init_state'))
  first = jax.device_get(init())
  tree = jax.tree.structure(first)

  def step(params, state, token_B):
    state = jax.tree.unflatten(tree, [state[name] for name in names])
    variables = {'params': bundle_lib.nested(params)}
    state, logits = model.apply(variables, state, token_B[:, None])
    return _named(state), logits[:, 0]

  first = _named(first)
  names = [*first]
  like = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (params, first)
  )
  token_B = jax.ShapeDtypeStruct((batch_size,), jnp.int32)
  run = jax.export.export(jax.jit(step), platforms=platforms)
  return {k: np.asarray(x) for k, x in first.items()}, run(*like, token_B)


def _named(state):
  """Returns a state's leaves by path, as '1.0.memory_BxHxKxP', in order."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): x
    for path, x in jax.tree_util.tree_leaves_with_path(state)
  }
