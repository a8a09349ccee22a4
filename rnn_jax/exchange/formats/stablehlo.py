"""The step of decoding as a program, compiled to StableHLO ahead of time.

    (state, logits_BxV) = step(params, state, token_B)

A folder holds all that it takes to run it with jax and NumPy alone:

    step.stablehlo           the program, of jax.export
    parameters.safetensors   params by name, float32
    state.safetensors        the state of rows that have read nothing
    interface.json           inputs and outputs by name, shape and dtype
    tokenizer.json           the vocabulary, for other programs to read
    decode.py                a script that writes tokens with these

Prompts are read by the same step, a token at a time; the state is constant in
size, or that of the window of attention.
"""

import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.exchange import request
from rnn_jax.exchange import standalone
from rnn_jax.exchange import tensors
from rnn_jax.inference import layers
from rnn_jax.models import language_model
from rnn_jax.training import bundle as bundle_lib

PLATFORMS = ('cpu', 'cuda', 'rocm', 'tpu')


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes the folder, which is whole or absent at any time.

  Raises:
    InputError: a model that writes no text, no rows, a platform that there
      isn't, or a folder that can't be written.
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
      "task.answer='pooled': such a model writes no text: export it as "
      "'safetensors'"
    )
  if batch_size < 1:
    raise errors.InputError(f'--batch_size={batch_size}: give 1 or more')
  for platform in platforms:
    if platform not in PLATFORMS:
      raise errors.InputError(
        f'--platforms={",".join(platforms)}: choose of {PLATFORMS}'
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
  """The leaves of a state by their path, '1.0.memory_BxHxKxP', in order."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): x
    for path, x in jax.tree_util.tree_leaves_with_path(state)
  }


def _interface(bundle, batch_size, exported):
  """What interface.json says."""
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
    'boundary': bundle.tokenizer.boundary,  # in front of a document
    'longest': model.longest if model.positions == 'learned' else 0,
    'jax': jax.__version__,
    'calling_convention': exported.calling_convention_version,
    'inputs': {'params': params, 'state': state, 'token_B': token},
    'outputs': dict(zip(('state', 'logits_BxV'), outputs, strict=True)),
  }


def _described(aval):
  return f'{aval.dtype}{list(aval.shape)}'
