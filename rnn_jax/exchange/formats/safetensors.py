"""A run's model in one .safetensors file.

Tensors have the names of the parameters, joined by dots, and training's
shapes. The metadata is {'format': 'rnn_jax', 'config': JSON, 'tokenizer':
JSON}: the file is all that `launch.generate` needs.
"""

import json

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import tokenizer as tokenizer_lib
from rnn_jax.exchange import request
from rnn_jax.exchange import tensors
from rnn_jax.training import bundle as bundle_lib

NAME = 'rnn_jax'


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a file that `write` made.

  Raises:
    InputError: another file, or tensors that its config doesn't have.
  """
  source.refuse('config', 'tokenizer')
  metadata = tensors.read_metadata(source.path)
  if metadata.get('format') != NAME:
    raise errors.InputError(
      f'{source.path} was not written by launch.export: its metadata has '
      f'format={metadata.get("format")!r}: choose the --format that it is in'
    )
  try:
    config = json.loads(metadata['config'])
    spec = json.loads(metadata['tokenizer'])
    tokenizer = tokenizer_lib.from_spec(spec)
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise errors.InputError(
      f'{source.path}: its metadata is damaged ({error}): export it anew'
    ) from error
  config = config_lib.parse(config)
  found = tensors.read(source.path)
  expected = bundle_lib.flat(bundle_lib.like(config, tokenizer))
  shapes = {name: x.shape for name, x in expected.items()}
  bundle_lib.check(found, shapes, str(source.path))
  return bundle_lib.make(config, tokenizer, bundle_lib.nested(found))


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes the file.

  Raises:
    InputError: a name that doesn't end in .safetensors, or no room.
  """
  target.refuse('batch_size', 'platforms')
  if target.path.suffix != tensors.SAFE:
    raise errors.InputError(f'--output={target.path}: end it in {tensors.SAFE}')
  metadata = {
    'format': NAME,
    'config': config_lib.to_json(bundle.config),
    'tokenizer': json.dumps(bundle.tokenizer.spec()),
  }
  tensors.write(target.path, bundle_lib.flat(bundle.params), metadata)
