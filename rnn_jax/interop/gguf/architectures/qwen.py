"""Qwen2 and Qwen3, and Qwen3's experts, whose gates sum to 1.

Channels of heads are in the order of ours. Qwen2 has biases of queries, keys
and values, and heads that divide the width; Qwen3 norms queries and keys.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import table
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import llama

ARCHITECTURES = {
  'qwen2': ('qwen2',),
  'qwen3': ('qwen3',),
  'qwen3moe': ('qwen3_moe',),
}
NUMBERS: dict[str, tensors_lib.Numbers] = {}
EXPERTS = (
  fields_lib.Field('expert_count', 'num_experts'),
  fields_lib.Field('expert_used_count', 'num_experts_per_tok'),
  fields_lib.Field('expert_feed_forward_length', 'moe_intermediate_size'),
)


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = llama.attention(fields, file)
  if fields.architecture == 'qwen3moe':
    own |= fields_lib.read(fields, EXPERTS)
    return own | {'model_type': 'qwen3_moe', 'norm_topk_prob': True}
  if fields.architecture == 'qwen2':
    width = own['hidden_size'] // max(1, own['num_attention_heads'])
    fields.one_of('attention.key_length', (width,), width)
  own |= fields_lib.read(fields, (llama.WIDTH,))
  return own | {'model_type': fields.architecture}


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  own = llama.described_attention(theirs)
  if theirs['model_type'] == 'qwen3_moe':
    return own | fields_lib.write(theirs, EXPERTS)
  return own | fields_lib.write(theirs, (llama.WIDTH,))


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return llama.rows(config)


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
