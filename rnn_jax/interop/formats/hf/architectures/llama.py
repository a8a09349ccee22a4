"""Llama and what differs from it a little: Qwen2, Qwen3, Mistral.

    x = x + attention(rms_norm(x) * s)       x = x + mlp(rms_norm(x) * t)

with grouped queries, rotary positions and a gated MLP. Qwen2 has biases, Qwen3
norms of queries and keys, Mistral a window.
Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models",
2023.
"""

from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import attention as attention_cell
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary

MODEL_TYPES = {
  'llama': 'LlamaForCausalLM',
  'mistral': 'MistralForCausalLM',
  'qwen2': 'Qwen2ForCausalLM',
  'qwen3': 'Qwen3ForCausalLM',
}
CELLS = ('attention',)
NAMES = table.Names('model.embed_tokens', 'model.norm', 'model.layers')
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width'),
  fields.Field('intermediate_size', 'model.mlp_width'),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', 1e-6),
  fields.Field('num_attention_heads', 'cell.heads'),
)
MLP_BIAS = fields.Field('mlp_bias', 'model.biases', False)
ATTENTION_BIAS = fields.Field('attention_bias', 'cell.biases', False)
OF_TYPE = {'llama': (MLP_BIAS, ATTENTION_BIAS), 'qwen3': (ATTENTION_BIAS,)}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  model_type = keys.values['model_type']
  own = fields.options(keys, (*FIELDS, MLP_BIAS, ATTENTION_BIAS))
  heads, width = own['cell.heads'], own['model.width']
  if model_type == 'qwen2':
    own |= {'cell.biases': True, 'cell.output_bias': False}
  if normed := model_type == 'qwen3':
    epsilon = own['model.norm_epsilon']
    own |= {'cell.qk_norm': True, 'cell.norm_epsilon': epsilon}
  activation = keys.one_of('hidden_act', fields.ACTIVATIONS, 'silu')
  return {
    **own,
    **fields.head(keys, tied=False),
    'model.cell': 'attention',
    'model.mlp': fields.ACTIVATIONS[activation],
    'model.norm_scale': True,
    'cell.head_width': keys.whole(
      'head_dim', 128 if normed else width // heads
    ),
    'cell.kv_heads': keys.whole('num_key_value_heads', heads),
    'cell.window': _window(keys),
    'cell.rotary': rotary.base(keys, (*rotary.SCALINGS,)),
    'cell.rotary_scaling': rotary.scaling(keys),
  }


def _window(keys):
  """Returns the earlier steps that a step sees; 0: all."""
  model_type = keys.values['model_type']
  if model_type.startswith('qwen'):
    fields.need(keys, {'use_sliding_window': False})
    keys.names('layer_types', ('full_attention',))
    return 0
  if model_type == 'llama' or keys.values.get('sliding_window', 1) is None:
    return 0
  return keys.whole('sliding_window', 4096, least=2) - 1


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  cell = config.cell
  own = fields.describe(config, (*FIELDS, *OF_TYPE.get(model_type, ())))
  if model_type == 'mistral':
    whole = cell.window >= config.data.length
    own['sliding_window'] = None if whole else cell.window + 1
  if model_type.startswith('qwen'):
    own['use_sliding_window'] = False
  return own | {
    'hidden_act': fields.activation(config.model.mlp),
    'num_key_value_heads': cell.groups,
    'head_dim': cell.head_width,
    'rope_parameters': rotary.described(cell.rotary, cell.rotary_scaling),
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  rows = table.within('mlp', 'mlp', mlp(config.model))
  return attention_block(config) + rows


def attention_block(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer's attention and of its two norms."""
  rows = table.within('self_attn', 'cell', attention(config))
  return norms(config.model.width) + rows


def norms(width: int) -> list[table.Row]:
  """Returns the scales of a layer's two norms."""
  return [
    table.scale('input_layernorm', 'cell_norm', width),
    table.scale('post_attention_layernorm', 'mlp_norm', width),
  ]


def attention(config: config_lib.Config) -> list[table.Tensor]:
  """Returns the tensors of attention, whose projections ours has fused."""
  cell: attention_cell.Config = config.cell
  width, K = config.model.width, cell.head_width
  # In both, a gate follows its query.
  queries = cell.heads // cell.groups * (1 + cell.output_gate)
  # Ours ends in G groups of queries, a key and a value.
  widths = {'q_proj': queries * K, 'k_proj': K, 'v_proj': K}
  names = {name: name for name in widths}
  biased = cell.biases and cell.projection_bias
  rows = table.projected(names, widths, cell.groups, width, biased)
  shape, biased = (width, cell.heads * K), cell.biases and cell.output_bias
  rows += table.dense('o_proj', 'output', shape, biased)
  if cell.qk_norm:
    rows.append(table.scale('q_norm', 'query_norm', K))
    rows.append(table.scale('k_norm', 'key_norm', K))
  return rows


def mlp(model: config_lib.Model) -> list[table.Tensor]:
  """Returns the tensors of a layer's gated MLP."""
  return gated_mlp(model.mlp_width, model.width, model.biases)


def gated_mlp(
  inner: int, width: int, biased: bool = False
) -> list[table.Tensor]:
  """Returns the tensors of a gated MLP, `inner` wide inside."""
  return [
    *table.dense('gate_proj', 'gate', (inner, width), biased),
    *table.dense('up_proj', 'up', (inner, width), biased),
    *table.dense('down_proj', 'down', (width, inner), biased),
  ]
