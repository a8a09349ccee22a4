"""Architectures of transformers and flash-linear-attention, one a file.

A file has

    MODEL_TYPES                       {model_type in config.json: its class}
    CELLS                             cells that such a model may have
    options(keys)                     options of ours by key, from config.json
    describe(config, model_type)      the inverse: keys of config.json
    NAMES                             of parts of a folder (interop/table.py)
    layer(config)                     the tensors of a layer
"""

import importlib
import pkgutil
import types

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table


def known(first: str | None = None) -> list[tuple[types.ModuleType, str]]:
  """Returns (architecture, model_type) of all, those of `first` first."""
  listed = []
  for module in sorted(x.name for x in pkgutil.iter_modules(__path__)):
    one = importlib.import_module(f'{__name__}.{module}')
    listed += [(one, model_type) for model_type in one.MODEL_TYPES]
  return sorted(listed, key=lambda pair: pair[1] != first)


def tensors(
  architecture: types.ModuleType, config: config_lib.Config, vocabulary: int
) -> list[table.Row]:
  """Returns the table of a model's tensors; `vocabulary` is its size."""
  layer = architecture.layer
  return table.stack(config, vocabulary, architecture.NAMES, layer)


def find(keys: keys_lib.Keys) -> types.ModuleType:
  """Returns the architecture of a config.json.

  Raises:
    InputError: there is none; the message lists those that there are.
  """
  by_type = {name: one for one, name in known()}
  return by_type[keys.one_of('model_type', by_type, None)]
