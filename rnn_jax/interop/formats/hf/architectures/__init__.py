"""Architectures of transformers and flash-linear-attention, one a file.

A file has

    MODEL_TYPES                       {model_type in config.json: its class}
    CELLS                             cells that such a model may have
    options(keys)                     options of ours by key, from config.json
    describe(config, model_type)      the inverse: keys of config.json
    NAMES                             of parts of a folder (interop/table.py)
    layer(config)                     the tensors of a layer
    tensors(config, vocabulary)       of a model, where it isn't made of these
    LAYERS_DIFFER                     whether model.cells may be given; without
                                      it, where there are several CELLS
"""

import dataclasses
import importlib
import pkgutil
import types

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table

# Models that read images too, whose `text_config` is that of an architecture.
WITH_IMAGES = ('qwen3_5', 'qwen3_5_moe')


def known(first: str | None = None) -> list[tuple[types.ModuleType, str]]:
  """Returns (architecture, model_type) of all, those of `first` first.

  Then those with fewer kinds of cells, and by name: a model that several have
  is written as the first of them.
  """
  listed = []
  for module in sorted(x.name for x in pkgutil.iter_modules(__path__)):
    one = importlib.import_module(f'{__name__}.{module}')
    listed += [(one, model_type) for model_type in one.MODEL_TYPES]
  return sorted(listed, key=lambda x: (x[1] != first, len(x[0].CELLS)))


def may_have(architecture: types.ModuleType, model: config_lib.Model) -> bool:
  """Returns whether an architecture has the cells of a model's layers."""
  several = len(architecture.CELLS) > 1
  differ = getattr(architecture, 'LAYERS_DIFFER', several)
  known = {*model.pattern} <= {*architecture.CELLS}
  return known and (differ or not model.cells)


def tensors(
  architecture: types.ModuleType, config: config_lib.Config, vocabulary: int
) -> list[table.Row]:
  """Returns the table of a model's tensors; `vocabulary` is its size."""
  if own := getattr(architecture, 'tensors', None):
    return own(config, vocabulary)
  layer = architecture.layer
  return table.stack(config, vocabulary, architecture.NAMES, layer)


def text_part(keys: keys_lib.Keys) -> keys_lib.Keys:
  """Returns the keys of a model that writes text, of those of a config.json.

  Of a model that reads images too they are in `text_config`.
  """
  if keys.get('model_type') not in WITH_IMAGES:
    return keys
  own = keys.section('text_config').values
  name = 'tie_word_embeddings'
  outer = {name: keys.values[name]} if name in keys.values else {}
  return dataclasses.replace(keys, values=own | outer)


def find(keys: keys_lib.Keys) -> types.ModuleType:
  """Returns the architecture of a config.json.

  Raises:
    InputError: there is none; the message lists those that there are.
  """
  by_type = {name: one for one, name in known()}
  return by_type[keys.one_of('model_type', by_type, None)]
