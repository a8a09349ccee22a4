"""Architectures of llama.cpp, one a file.

A file has

    ARCHITECTURES             {name in a file: its model_types in a config.json}
    NUMBERS                   {tensor of a layer: what is done to its numbers}
    keys(fields, tensors)     keys of config.json, from a file's values
    describe(theirs)          the inverse
    layer(config)             the tensors of a layer
    constants(config)         tensors that aren't parameters
    NORM                      the name of the last norm, if it has another
    IGNORED                   options that a file doesn't have, if there are any
    numbers(config)           more of NUMBERS, if they depend on the model

`keys` reads what llama.cpp computes with, so that a model of ours is one of its
architecture if `keys` of its own description is that model.
"""

import dataclasses
import importlib
import json
import pkgutil
import types
from collections.abc import Mapping
from typing import Any

from rnn_jax import errors
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import architectures as hf_architectures
from rnn_jax.interop.formats.hf import config_json
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import reader
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.runs import bundle as bundle_lib

ARCHITECTURE = 'general.architecture'
CONTEXT = 'context_length'
# Of a model whose state doesn't grow, which llama.cpp wants too.
ANY_LENGTH = 2**20
WITHOUT_HEADS = {'feed_forward_length': 0, 'attention.head_count': 0}
Tensors = Mapping[str, Any]  # which have a shape, by name


def known() -> dict[str, types.ModuleType]:
  """Returns the modules by the names of their architectures."""
  modules = [
    importlib.import_module(f'{__name__}.{x.name}')
    for x in pkgutil.iter_modules(__path__)
  ]
  return {name: one for one in modules for name in one.ARCHITECTURES}


def find(file: reader.File) -> tuple[types.ModuleType, fields_lib.Fields]:
  """Returns the architecture of a file, and its values.

  Raises:
    InputError: there is none; the message lists those that there are.
  """
  values = keys_lib.Keys(file.path, file.values)
  by_name = known()
  name = values.one_of(ARCHITECTURE, by_name, None)
  return by_name[name], fields_lib.Fields(file.path, file.values, name)


def config_keys(
  architecture: types.ModuleType, fields: fields_lib.Fields, tensors: Any
) -> keys_lib.Keys:
  """Returns the config.json of a file.

  Args:
    architecture: of the file.
    fields: its values.
    tensors: its reader.File, or what has the same tensors and read(name).

  Raises:
    InputError: a value is wrong or unsupported, or there is no embedding.
  """
  names = tensors.tensors
  if tensors_lib.EMBEDDING not in names:
    raise errors.InputError(
      f'{fields.path}: it has no {tensors_lib.EMBEDDING}: get it again'
    )
  vocabulary, *_ = names[tensors_lib.EMBEDDING].shape
  own = {
    'vocab_size': vocabulary,
    'tie_word_embeddings': tensors_lib.HEAD not in names,
    'max_position_embeddings': fields.whole(CONTEXT, ANY_LENGTH),
    **architecture.keys(fields, tensors),
  }
  return keys_lib.Keys(fields.path, own)


def describe(
  bundle: bundle_lib.Bundle,
) -> tuple[str, dict[str, Any], dict[str, tensors_lib.Held]]:
  """Returns the architecture of a model, its values, and its tensors.

  Raises:
    InputError: names the options that llama.cpp's architecture lacks.
  """
  theirs, _ = config_json.describe(_of_type(bundle))
  model_type = theirs['model_type']
  found = [
    (name, one)
    for name, one in known().items()
    if model_type in one.ARCHITECTURES[name]
  ]
  if not found:
    types_ = {x for one in known().values() for x in one.ARCHITECTURES.values()}
    raise errors.InputError(
      f'llama.cpp has no architecture for {model_type}: of ours it has '
      f'{sorted(x for several in types_ for x in several)}'
    )
  refusals = []
  for name, architecture in found:
    try:
      return _described(bundle, name, architecture, theirs)
    except errors.InputError as error:
      refusals.append(str(error))
  raise errors.InputError('; '.join(refusals))


def _described(bundle, name, architecture, theirs):
  """Returns what `describe` does, of one architecture."""
  size = bundle.tokenizer.size
  held = tensors_lib.of_model(architecture, bundle.config, size)
  try:
    own = architecture.describe(theirs)
  except KeyError as error:
    raise errors.InputError(
      f'llama.cpp has no such model of {name}: it lacks {error}'
    ) from error
  values = {'vocab_size': size, CONTEXT: _context(bundle, theirs), **own}
  values = {f'{name}.{key}': value for key, value in values.items()}
  back = config_keys(
    architecture, fields_lib.Fields(name, values, name), _Written(held)
  )
  lacking = config_json.differing(
    bundle.config, hf_architectures.find(back), back.values
  )
  ignored = getattr(architecture, 'IGNORED', ())
  lacking = [x for x in lacking if x.partition('=')[0] not in ignored]
  if lacking:
    raise errors.InputError(
      f'llama.cpp has no such model of {name}: ' + '; '.join(lacking)
    )
  return name, values, held


class _Written:
  """The tensors of a model that isn't written yet, as reader.File has them."""

  def __init__(self, held):
    self.tensors = held

  def read(self, name):
    return self.tensors[name].take({})


def _of_type(bundle):
  """Returns a model that has kept nothing but its model_type."""
  kept = config_json.kept(bundle.kept, config_json.CONFIG)
  own = {'model_type': kept.get('model_type')}
  return dataclasses.replace(bundle, kept={config_json.CONFIG: json.dumps(own)})


def _context(bundle, theirs):
  """Returns the positions that a model knows: of its own files, or its rows."""
  if bundle.config.model.positions == 'learned':
    return bundle.config.model.max_positions
  kept = config_json.kept(bundle.kept, config_json.CONFIG)
  return config_json.context(kept) or config_json.context(
    keys_lib.Keys(config_json.CONFIG, theirs)
  )
