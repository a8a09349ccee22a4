"""Exports the decoding step as a StableHLO program.

    (state, logits_BxV) = step(params, state, token_B)

A folder has all that it takes to run it with only jax and NumPy:

    step.stablehlo           the program, of jax.export
    parameters.safetensors   params by name, float32
    state.safetensors        the state of rows that have read nothing
    interface.json           inputs and outputs by name, shape and dtype
    tokenizer.json           the vocabulary, for other programs to read
    decode.py                a script that writes tokens with these

The same step reads prompts, one token at a time; the state is constant in size,
or has the size of the attention window.
"""

import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import layers
from rnn_jax.interop import request
from rnn_jax.interop import standalone
from rnn_jax.interop import tensors
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib

PLATFORMS = ('cpu', 'cuda', 'rocm', 'tpu')


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes the folder, which is complete or absent at any time.

  Raises:
    InputError: the model doesn't write text, there are no rows, the platform is
      unknown, or the folder can't be written.
  """
  batch_size = 1 if target.batch_size is None else target.batch_size
  platforms = target.platforms or PLATFORMS[:1]
  _check(bundle.config, batch_size, platforms)
  model = layers.for_inference(
    language_model.from_config(bundle.config, bundle.tokenizer.size)
  )
  params = bundle_lib.flat(layers.unstack(bundle.params))
  state, exported = _export(model, params, batch_size, platforms)
  interface = _interface(bundle, batch_size, exported)
  part = target.path.with_name(f'{target.path.name}.{os.getpid()}.part')
  try:
    part.mkdir()
    (part / 'step.stablehlo').write_bytes(exported.serialize())
    tensors.write(part / 'parameters.safetensors', params)
    tensors.write(part / 'state.safetensors', state)
    text = json.dumps(interface, indent=1) + '\n'
    (part / 'interface.json').write_text(text, encoding='utf-8')
    bundle.tokenizer.save(part / 'tokenizer.json')
    shutil.copyfile(standalone.__file__, part / 'decode.py')
    os.replace(part, target.path)
  except OSError as error:
    raise errors.InputError(f'--output={target.path}: {error}') from error
  finally:
    shutil.rmtree(part, ignore_errors=True)


def _check(config, batch_size, platforms):
  if not config.task.writes_text:
    raise errors.InputError(
      "task.answer='pooled': such a model doesn't write text: export it as "
      "'safetensors'"
    )
  if batch_size < 1:
    errors.refuse('--batch_size', batch_size, 'give 1 or more')
  for platform in platforms:
    if platform not in PLATFORMS:
      raise errors.InputError(
        f'--platforms={",".join(platforms)}: choose from {PLATFORMS}'
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


def _interface(bundle, batch_size, exported):
  """Returns the content of interface.json."""
  inputs, outputs = (
    jax.tree.map(_described, jax.tree.unflatten(tree, avals))
    for tree, avals in (
      (exported.in_tree, exported.in_avals),
      (exported.out_tree, exported.out_avals),
    )
  )
  model = bundle.config.model
  (params, state, token), _ = inputs
  return {
    'batch_size': batch_size,
    'platforms': list(exported.platforms),
    'vocabulary': bundle.tokenizer.size,
    'boundary': bundle.tokenizer.boundary,  # before a document
    'longest': model.max_positions if model.positions == 'learned' else 0,
    'jax': jax.__version__,
    'calling_convention': exported.calling_convention_version,
    'inputs': {'params': params, 'state': state, 'token_B': token},
    'outputs': dict(zip(('state', 'logits_BxV'), outputs, strict=True)),
  }


def _described(aval):
  return f'{aval.dtype}{list(aval.shape)}'
