"""Qwen3-Next: projections of a Gated DeltaNet part by part, scales of norms.

    attn_qkv     all queries, all keys, all values
    attn_gate    all output gates
    ssm_ba       of each head of keys, beta and the decay of its values' heads

Scales of norms are stored as they are, ours less one; values have the width of
keys, and every layer has experts whose gates sum to 1.
"""

import math
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import qwen3_next as hf_qwen3_next
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import llama
from rnn_jax.interop.gguf.architectures import mamba2
from rnn_jax.interop.gguf.architectures import qwen

ARCHITECTURES = {'qwen3next': ('qwen3_next',)}
NUMBERS = mamba2.NUMBERS | dict.fromkeys(
  (
    'output_norm.weight',
    'attn_norm.weight',
    'post_attention_norm.weight',
    'attn_q_norm.weight',
    'attn_k_norm.weight',
  ),
  tensors_lib.PLUS_ONE,
)
NAMES = {
  **llama.ATTENTION,
  'post_attention_layernorm': 'post_attention_norm',
  'linear_attn.in_proj_ba': 'ssm_ba',
  'linear_attn.conv1d': 'ssm_conv1d',
  'linear_attn.A_log': 'ssm_a',
  'linear_attn.dt_bias': 'ssm_dt.bias',
  'linear_attn.norm': 'ssm_norm',
  'linear_attn.out_proj': 'ssm_out',
  'mlp.gate': llama.ROUTER,
  'mlp.shared_expert_gate': 'ffn_gate_inp_shexp',
  'mlp.shared_expert.gate_proj': 'ffn_gate_shexp',
  'mlp.shared_expert.up_proj': 'ffn_up_shexp',
  'mlp.shared_expert.down_proj': 'ffn_down_shexp',
}
EXPERTS = (
  *qwen.EXPERTS,
  fields_lib.Field(
    'expert_shared_feed_forward_length', 'shared_expert_intermediate_size'
  ),
)
LINEAR = (
  fields_lib.Field('ssm.conv_kernel', 'linear_conv_kernel_dim'),
  fields_lib.Field('ssm.state_size', 'linear_key_head_dim'),
  fields_lib.Field('ssm.group_count', 'linear_num_key_heads'),
  fields_lib.Field('ssm.time_step_rank', 'linear_num_value_heads'),
)
ROTATED = 'rope.dimension_count'
EVERY, RECURRENT = 'full_attention_interval', 'attention.recurrent_layers'
LATER = 'nextn_predict_layers'  # heads of later tokens


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = linear_keys(fields, file) | fields_lib.read(fields, EXPERTS)
  if not own['num_experts']:
    fields.refuse('expert_count', 0, 'every layer has experts')
  return own | {'model_type': 'qwen3_next', 'norm_topk_prob': True}


def linear_keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys but those of MLPs and experts."""
  own = llama.attention(fields, file, rotates_all=False)
  own |= fields_lib.read(fields, LINEAR)
  fields.one_of(LATER, (0,), 0)
  key, values = own['linear_key_head_dim'], own['linear_num_value_heads']
  fields.one_of(mamba2.INNER, (key * values,), None)
  head = own['head_dim']
  # A share of which transformers takes the whole part.
  share = math.nextafter(fields.whole(ROTATED, head) / head, 1)
  own['rope_parameters'] |= {rotary.SHARE: share}
  return own | {
    'linear_value_head_dim': key,
    'layer_types': _kinds(fields, own['num_hidden_layers']),
  }


def _kinds(fields, layers):
  linear, full = hf_qwen3_next.KINDS
  layers = min(layers, keys_lib.LAYERS)
  if fields.get(RECURRENT) is not None:
    recurrent = fields.each(RECURRENT, layers)
    return [linear if x else full for x in recurrent]
  every = fields.whole(EVERY, 4)
  return [linear if (n + 1) % every else full for n in range(layers)]


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  experts = {x.theirs: theirs.get(x.theirs, 0) for x in EXPERTS}
  return described_linear(theirs) | fields_lib.write(experts, EXPERTS)


def described_linear(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values of `linear_keys`."""
  linear, _ = hf_qwen3_next.KINDS
  share = theirs['rope_parameters'][rotary.SHARE]
  values = theirs['linear_num_value_heads'] * theirs['linear_value_head_dim']
  return {
    **llama.described_attention(theirs),
    **fields_lib.write(theirs, LINEAR),
    mamba2.INNER: values,
    ROTATED: round(theirs['head_dim'] * share),
    RECURRENT: [kind == linear for kind in theirs['layer_types']],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  cell, width = config.cell, config.model.width
  own = hf_qwen3_next.layer(config)
  experts = tensors_lib.experts(config.model)
  if config.model.cell == 'attention':
    shapes = {'ffn_gate_inp_shexp.weight': (width,)}
    return tensors_lib.named(own, NAMES, shapes) + experts
  H, mixed = cell.heads, delta.Cell.mixed
  channels = H * sum(cell.widths[part] for part in mixed)
  shapes = {
    'ffn_gate_inp_shexp.weight': (width,),
    'ssm_conv1d.weight': (channels, cell.convolution),
  }

  def project(x):
    return [table.head_view(cell.widths, part, H)(x) for part in mixed]

  projected = [
    *table.dense(
      'attn_qkv', 'cell.projection', (channels, width), view=project
    ),
    *table.dense(
      'attn_gate',
      'cell.projection',
      (H * cell.widths['output_gate'], width),
      view=table.head_view(cell.widths, 'output_gate', H),
    ),
  ]
  return [*tensors_lib.named(own, NAMES, shapes), *projected, *experts]


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
