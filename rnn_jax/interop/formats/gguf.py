"""A model as llama.cpp reads it: a folder with one GGUF file, and its card.

    model.gguf    tensors, sizes, vocabulary and chat template, or in parts
                  of up to --max_shard_size: model-00001-of-00003.gguf, ...
    README.md     the model card

An architecture is a file of interop/gguf/architectures. Matrices are float32,
16 bits, Q8_0 or Q4_0, as --dtype says. A file, or several as llama-gguf-split
writes them, is read in these and in the other formats of blocks, dequantized to
float32.
"""

import dataclasses
import importlib.util
import json
import pathlib

from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.interop import model_card
from rnn_jax.interop import request
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import architectures as hf_architectures
from rnn_jax.interop.formats.hf import checkpoint
from rnn_jax.interop.formats.hf import config_json
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import bounds

PACKAGE = 'gguf'
FILE = 'model.gguf'


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a file, or of a folder with one; a part names all.

  A --config adds data, task and training, as with formats/hf; a --tokenizer
  takes the place of the file's. A run's folder keeps a config.json with the
  file's sizes, so that its context and architecture are written again.

  Raises:
    InputError: the package gguf isn't installed, the file is damaged, its
      architecture or an option of it isn't supported, or its tensors are
      others.
  """
  _need_package()
  from rnn_jax.interop.gguf import architectures
  from rnn_jax.interop.gguf import parts
  from rnn_jax.interop.gguf import tensors as tensors_lib
  from rnn_jax.interop.gguf import vocabulary

  file = parts.read(_file(source.path))
  architecture, fields = architectures.find(file)
  keys = architectures.config_keys(architecture, fields, file)
  theirs = hf_architectures.find(keys)
  config = config_json.read(keys, theirs, source)
  size = keys.whole('vocab_size', least=2)
  held = tensors_lib.of_model(architecture, config, size)
  expected = {name: x.shape for name, x in held.items()}
  bundle_lib.check(
    file.tensors, expected, str(file.path), shown=checkpoint.NAMED
  )
  tokenizer = source.tokenizer or vocabulary.read(
    file.path, file.values, size, source.config
  )
  if tokenizer.size != size:
    raise errors.InputError(
      f'{file.path}: the embedding has {size} rows, and the tokenizer '
      f'{tokenizer.size} entries: give the tokenizer of this model'
    )
  if tokenizer.template:
    config = config_json.read(keys, theirs, source, {'task.name': 'dialogue'})
  like = bundle_lib.like(config, tokenizer)
  sizes = values.largest_sizes(config)
  bounds.check_arrays(like, f'parameters of {file.path} with {sizes}')
  arrays = table.zeros(bundle_lib.flat(like))
  for name, own in held.items():
    try:
      own.place(arrays, file.read(name))
    except ValueError as error:
      raise errors.InputError(
        f'{file.path}: {name}: {error}: get it again'
      ) from error
  bundle = bundle_lib.make(config, tokenizer, bundle_lib.nested(arrays), like)
  kept = {config_json.CONFIG: json.dumps(keys.values)}
  return dataclasses.replace(bundle, kept=kept)


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes a folder, which is complete or absent at any time.

  Raises:
    InputError: the package gguf isn't installed, llama.cpp has no such model,
      tokenizer or task, or the folder can't be written.
  """
  target.refuse('batch_size', 'platforms', 'opset')
  _need_package()
  from rnn_jax.interop.gguf import architectures
  from rnn_jax.interop.gguf import blocks
  from rnn_jax.interop.gguf import vocabulary
  from rnn_jax.interop.gguf import writer

  form = target.dtype_of([*blocks.FORMATS]) or [*blocks.FORMATS][0]
  if not bundle.config.task.writes_text:
    errors.refuse(
      'task.name', bundle.config.task.name, 'only models that write text'
    )
  if target.path.suffix == f'.{PACKAGE}':
    errors.refuse('--output', str(target.path), f'give a folder, for {FILE}')
  limit = target.max_shard_size and request.nbytes(target.max_shard_size)
  name, own, held = architectures.describe(bundle)
  own |= vocabulary.write(bundle)
  own |= {'general.license': target.license} if target.license else {}
  arrays = bundle_lib.flat(bundle.params)
  tensors = {
    tensor: (x.shape, lambda x=x: x.take(arrays)) for tensor, x in held.items()
  }
  with target.folder() as part:
    writer.write(part / FILE, name, own, tensors, form, limit)
    model_card.write(part, bundle, target, model_card.Form('GGUF', form, name))


def _need_package():
  if importlib.util.find_spec(PACKAGE) is None:
    errors.refuse(
      '--format',
      'gguf',
      "it needs the package gguf: pip install 'rnn_jax[gguf]'",
    )


def _file(path: pathlib.Path) -> pathlib.Path:
  """Returns the file of a path, which may be a folder with one."""
  if not path.is_dir():
    return path
  from rnn_jax.interop.gguf import parts

  found = sorted(path.glob(f'*.{PACKAGE}'))
  found = [x for x in found if not parts.is_later(x)] or found[:1]
  if len(found) != 1:
    errors.refuse(
      '--input', str(path), f'it has {len(found)} .gguf files: name one'
    )
  return found[0]
