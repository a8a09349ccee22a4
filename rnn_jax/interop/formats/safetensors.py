"""A run's model in one .safetensors file.

Tensors have the names of the parameters, joined by dots, and their shapes in
training. The metadata is {'format': 'rnn_jax', 'config': JSON, 'tokenizer':
JSON}: `launch.generate` needs nothing else.
"""

import json

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import parts
from rnn_jax.config import values
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import bounds
from rnn_jax.system import files

NAME = 'rnn_jax'


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a file that `write` made.

  Raises:
    InputError: the file isn't one of `write`, or its tensors don't fit its
      config.
  """
  source.refuse('config', 'tokenizer')
  within = files.named(source.path)
  metadata = tensors.read_metadata(source.path, within)
  if metadata.get('format') != NAME:
    raise errors.InputError(
      f'{source.path} was not written by launch.export: its metadata has '
      f'format={metadata.get("format")!r}: choose the --format that it is in'
    )
  try:
    config = files.from_json(metadata['config'])
    spec = files.from_json(metadata['tokenizer'])
    tokenizer = tokenizer_lib.from_spec(spec)
    if not isinstance(config, dict):
      raise ValueError('config is no object')
  except (ValueError, KeyError) as error:
    raise errors.InputError(
      f'{source.path}: its metadata is damaged ({error}): export it again'
    ) from error
  parts.check_known(config, str(source.path))
  config = config_lib.parse(config)
  like = bundle_lib.like(config, tokenizer)
  sizes = values.largest_sizes(config)
  bounds.check_arrays(like, f'parameters of {source.path} with {sizes}')
  shapes = {name: x.shape for name, x in bundle_lib.flat(like).items()}
  arrays = tensors.read(
    source.path,
    within,
    lambda headers: bundle_lib.check(headers, shapes, str(source.path)),
  )
  return bundle_lib.make(config, tokenizer, bundle_lib.nested(arrays), like)


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes the file.

  Raises:
    InputError: the name doesn't end in .safetensors, or the file can't be
      written.
  """
  target.refuse('batch_size', 'platforms', 'dtype', 'opset')
  target.refuse('license', 'max_shard_size')
  if target.path.suffix != tensors.SAFE:
    raise errors.InputError(f'--output={target.path}: end it in {tensors.SAFE}')
  metadata = {
    'format': NAME,
    'config': config_lib.to_json(bundle.config),
    'tokenizer': json.dumps(bundle.tokenizer.spec()),
  }
  tensors.write(target.path, bundle_lib.flat(bundle.params), metadata)
