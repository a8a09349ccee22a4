"""GPT-2: layer norms, learned positions, and a GELU by its tanh.

Matrices are transposed, as all of llama.cpp's are.
"""

import dataclasses
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import gpt2 as hf_gpt2
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib

ARCHITECTURES = {'gpt2': ('gpt2',)}
NUMBERS: dict[str, tensors_lib.Numbers] = {}
NAMES = {
  'ln_1': 'attn_norm',
  'ln_2': 'ffn_norm',
  'attn.c_attn': 'attn_qkv',
  'attn.c_proj': 'attn_output',
  'mlp.c_fc': 'ffn_up',
  'mlp.c_proj': 'ffn_down',
}
FIELDS = (
  fields_lib.Field('block_count', 'n_layer'),
  fields_lib.Field('embedding_length', 'n_embd'),
  fields_lib.Field('feed_forward_length', 'n_inner'),
  fields_lib.Field('context_length', 'n_positions'),
  fields_lib.Field('attention.head_count', 'n_head'),
  fields_lib.Field('attention.layer_norm_epsilon', 'layer_norm_epsilon', 1e-5),
)


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  del file
  own = fields_lib.read(fields, FIELDS)
  heads = own['n_head']
  fields.one_of('attention.head_count_kv', (heads,), heads)
  return own | {'model_type': 'gpt2', 'activation_function': 'gelu_new'}


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  return fields_lib.write(theirs, FIELDS)


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  rows = tensors_lib.named(hf_gpt2.layer(config), NAMES)
  return [
    _transposed(row)
    if isinstance(row, table.Tensor) and len(row.shape) > 1
    else row
    for row in rows
  ]


def _transposed(row):
  own = row.view
  return dataclasses.replace(
    row,
    shape=row.shape[::-1],
    view=lambda x: np.moveaxis(own(x), 0, -1),
  )


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
