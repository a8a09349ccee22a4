"""The config.json of a model, and the Config that it describes.

A config.json of a model of ours is one whose Config differs in nothing from
that model's: whatever an architecture lacks is named.
"""

import types
from collections.abc import Mapping
from typing import Any

import flax.traverse_util

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import request
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import architectures
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

CONFIG = 'config.json'
FREE = {  # options of a model that its config.json doesn't describe
  'dropout',
  'dropout_shape',
  'token_dropout',
  'embedding_scale',
  'kernel_scale',
  'branch_scale',
  'balance',
  'input_bias',  # and the next, at the start of training
  'forget_biases',
  'unroll',
}

CONTEXTS = ('max_position_embeddings', 'model_max_length', 'n_positions')
CONTEXT = 4096  # tokens at most, without a config that says how many


def read(
  keys: keys_lib.Keys,
  architecture: types.ModuleType,
  source: request.Source,
  others: Mapping[str, Any] | None = None,
) -> config_lib.Config:
  """Returns the Config of a config.json; other sections are those given.

  Args:
    keys: of config.json.
    architecture: of the model.
    source: has the given Config.
    others: options of ours by key that config.json doesn't have.

  Raises:
    InputError: a key's value is wrong or unsupported.
  """
  options = architecture.options(keys)
  _check_sizes(keys, options)
  try:
    raw = request.completed(_raw({**options, **(others or {})}), source.config)
    if source.config is None:
      context = keys.whole(_context(keys.values), CONTEXT)
      raw['data']['length'] = length = min(context, CONTEXT)
      tokens = raw['sample']['new_tokens']
      raw['sample']['new_tokens'] = min(tokens, length // 2)
    return config_lib.parse(_fitted(raw))
  except errors.InputError as error:
    where = '' if str(error).startswith(str(keys.path)) else f'{keys.path}: '
    raise errors.InputError(f'{where}{error}') from error


def _check_sizes(keys, options):
  """Refuses sizes that factors of theirs make too large."""
  for name, value in options.items():
    if type(value) is int and value > keys_lib.MAX_SIZE:
      keys.refuse(
        name, value, f'its keys make that of it: at most {keys_lib.MAX_SIZE:,}'
      )
  layers = options['model.layers']
  count = layers * max(1, options.get('model.experts.count', 0))
  if count > keys_lib.MATRICES:
    keys.refuse(
      'num_hidden_layers',
      layers,
      f'{count:,} experts in all layers, and {keys_lib.MATRICES:,} are enough',
    )


def _fitted(raw):
  """Returns a raw config without windows that are longer than its rows."""
  cell = flax.traverse_util.flatten_dict(raw['cell'])
  for path, value in cell.items():
    if path[-1] == 'window' and value > raw['data']['length']:
      cell[path] = 0
  return raw | {'cell': flax.traverse_util.unflatten_dict(cell)}


def _raw(options):
  """Returns a raw config from {'model.width': 64, ...} and defaults."""
  cells = options.get('model.cells') or options['model.cell']
  raw = config_lib.default(cells, layout='packed')
  config_lib.override(raw, options)
  return raw.to_dict()


def describe(
  bundle: bundle_lib.Bundle,
) -> tuple[dict[str, Any], dict[str, table.Stored]]:
  """Returns config.json and the tensors of a model.

  Raises:
    InputError: names the options that the closest architecture lacks.
  """
  source = architectures.text_part(kept(bundle.kept, CONFIG)).values
  closest: list[str] = []
  refusals: list[str] = []
  for architecture, model_type in architectures.known(source.get('model_type')):
    if not architectures.may_have(architecture, bundle.config.model):
      continue
    for theirs in _candidates(bundle, source, architecture, model_type):
      try:
        differences = differing(bundle.config, architecture, theirs)
      except errors.InputError as error:
        refusals.append(f'{error} ({model_type})')
        differences = []
        continue
      if not differences:
        size = bundle.tokenizer.size
        rows = architectures.tensors(architecture, bundle.config, size)
        return theirs, table.stored(rows)
    if differences and (not closest or len(differences) < len(closest)):
      closest = [f'{x} ({model_type})' for x in differences]
  cells = [*bundle.config.model.pattern]
  reasons = closest or refusals or [f'no architecture has the cells {cells}']
  raise errors.InputError(
    'transformers has no such model: ' + '; '.join(reasons)
  )


def context(keys: keys_lib.Keys) -> int | None:
  """Returns the longest context in a config.json, if it has one."""
  name = _context(keys.values)
  return None if keys.get(name) is None else keys.whole(name)


def _context(keys):
  """Returns the name of the longest context in a config.json."""
  named = [name for name in CONTEXTS if name in keys]
  return named[0] if named else CONTEXTS[0]


def _candidates(bundle, source, architecture, model_type):
  """Returns what may be the config.json of a model that came with `source`."""
  own = {
    'architectures': [architecture.MODEL_TYPES[model_type]],
    **architecture.describe(bundle.config, model_type),
  }
  candidates = [source | own]
  if source.get('model_type') == model_type:
    candidates.insert(0, own | source)  # may say the same in another way
  return [_complete(bundle, keys, model_type) for keys in candidates]


def _complete(bundle, keys, model_type):
  theirs = {
    _context(keys): bundle.config.data.length,
    'eos_token_id': bundle.tokenizer.boundary,
    **keys,
    'model_type': model_type,
    'vocab_size': bundle.tokenizer.size,
    'tie_word_embeddings': bundle.config.model.tied,
    'dtype': 'float32',
  }
  theirs.pop('torch_dtype', None)  # an older name of dtype
  return theirs


def differing(
  config: config_lib.Config,
  architecture: types.ModuleType,
  theirs: dict[str, Any],
) -> list[str]:
  """Returns the options of a model that a config.json doesn't describe.

  Args:
    config: of the model.
    architecture: of the config.json.
    theirs: its keys.

  Raises:
    InputError: the config.json describes no model.
  """
  options = architecture.options(keys_lib.Keys(CONFIG, theirs))
  raw = _fitted(request.completed(_raw(options), config))
  ours, theirs = _flat(config), _flat(config_lib.parse(raw))
  return [
    f'{key}={value!r}, not {theirs.get(key)!r}'
    for key, value in ours.items()
    if value != theirs.get(key)
  ]


def _flat(config):
  """Returns what defines a model, {'cell.heads': 4, ...}."""
  raw = {name: config_lib.to_dict(config)[name] for name in request.OF_MODEL}
  options = flax.traverse_util.flatten_dict(raw, sep='.')
  for key in [x for x in options if x.endswith('.kv_heads')]:
    options[key] = options[key] or options[key.replace('.kv_', '.')]
  return {
    key: value
    for key, value in options.items()
    if key.rpartition('.')[2] not in FREE
  }


def kept(texts: Mapping[str, str], name: str) -> keys_lib.Keys:
  """Returns the keys of a file of JSON that a run's folder keeps."""
  path = f'{bundle_lib.KEPT}/{name}'
  with files.reading(path, 'remove it'):
    values = files.from_json(texts.get(name, '{}'), finite=False)
    if not isinstance(values, dict):
      raise ValueError('not a JSON object')
  return keys_lib.Keys(path, values)
