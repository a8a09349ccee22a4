"""Kimi Linear: latent attention with the keys' and values' maps apart.

    attn_k_b    H x C x K, of each head from keys to latents
    attn_v_b    H x P x C, from latents to values

A layer of Kimi Delta Attention is one without heads of keys. It and latent
attention have as many heads; there is no rank of queries and no groups of
experts, whose gates sum to 1 before they are scaled. The norms of latents add
rms_norm_eps.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import latent_attention
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import kimi_linear as hf_kimi
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import llama
from rnn_jax.interop.gguf.architectures import mamba2

ARCHITECTURES = {'kimi-linear': ('kimi_linear',)}
NUMBERS = mamba2.NUMBERS
NAMES = {
  **llama.ATTENTION,
  **llama.MLP,
  'post_attention_layernorm': 'ffn_norm',
  **{f'self_attn.{part}_conv1d': f'ssm_conv1d_{part}' for part in 'qkv'},
  'self_attn.f_a_proj': 'ssm_f_a',
  'self_attn.f_b_proj': 'ssm_f_b',
  'self_attn.b_proj': 'ssm_beta',
  'self_attn.A_log': 'ssm_a',
  'self_attn.dt_bias': 'ssm_dt.bias',
  'self_attn.g_a_proj': 'ssm_g_a',
  'self_attn.g_b_proj': 'ssm_g_b',
  'self_attn.o_norm': 'ssm_norm',
  'self_attn.kv_a_proj_with_mqa': 'attn_kv_a_mqa',
  'self_attn.kv_a_layernorm': 'attn_kv_a_norm',
  'block_sparse_moe.gate': llama.ROUTER,
  'block_sparse_moe.gate.e_score_correction_bias': 'exp_probs_b.bias',
  'block_sparse_moe.shared_experts.gate_proj': 'ffn_gate_shexp',
  'block_sparse_moe.shared_experts.up_proj': 'ffn_up_shexp',
  'block_sparse_moe.shared_experts.down_proj': 'ffn_down_shexp',
}
FIELDS = (
  *llama.FIELDS,
  llama.WIDTH,
  fields_lib.Field('ssm.conv_kernel', 'linear_conv_kernel_dim'),
  fields_lib.Field('kda.head_dim', 'linear_head_dim'),
  fields_lib.Field('attention.kv_lora_rank', 'kv_lora_rank'),
  fields_lib.Field('attention.value_length_mla', 'v_head_dim'),
  fields_lib.Field('rope.dimension_count', 'qk_rope_head_dim'),
  fields_lib.Field('expert_count', 'num_experts'),
  fields_lib.Field('expert_used_count', 'num_experts_per_token'),
  fields_lib.Field('expert_feed_forward_length', 'moe_intermediate_size'),
  fields_lib.Field('expert_shared_count', 'num_shared_experts'),
  fields_lib.Field('expert_weights_scale', 'routed_scaling_factor', 1.0),
)
DENSE = fields_lib.Field(
  'leading_dense_block_count', 'first_k_dense_replace', 0
)
KEYS, KEY_HEADS = 'attention.key_length_mla', 'attention.head_count_kv'
GATING, SIGMOID = 'expert_gating_func', 2
ABSENT = ('attention.q_lora_rank', 'expert_group_count', 'kda.safe_gate')


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  del file
  own = fields_lib.read(fields, (*FIELDS, DENSE))
  for name in ABSENT:
    fields.absent(name)
  fields.one_of(GATING, (SIGMOID,), None)
  layers = min(own['num_hidden_layers'], keys_lib.LAYERS)
  linear, full = hf_kimi.KINDS
  heads, rotated = own['num_attention_heads'], own['qk_rope_head_dim']
  return own | {
    'model_type': 'kimi_linear',
    'num_key_value_heads': heads,
    'linear_num_heads': heads,
    'qk_nope_head_dim': fields.whole(KEYS) - rotated,
    'layer_types': [
      full if n else linear for n in fields.each(KEY_HEADS, layers)
    ],
    'moe_renormalize': True,
  }


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  _, full = hf_kimi.KINDS
  rank, rotated = theirs['kv_lora_rank'], theirs['qk_rope_head_dim']
  dense = theirs['mlp_layer_types'].count('dense')
  inner = theirs.get('intermediate_size', theirs.get('moe_intermediate_size'))
  experts = {x.theirs: theirs.get(x.theirs, 0) for x in FIELDS}
  experts |= {'intermediate_size': inner, DENSE.theirs: dense}
  return {
    **fields_lib.write(theirs | experts, (*FIELDS, DENSE)),
    KEY_HEADS: [int(kind == full) for kind in theirs['layer_types']],
    'attention.key_length': rank + rotated,
    'attention.value_length': rank,
    KEYS: theirs['qk_nope_head_dim'] + rotated,
    GATING: SIGMOID,
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  own = hf_kimi.layer(config)
  routed = config.model.experts.count > 0
  experts = tensors_lib.experts(config.model) if routed else []
  if config.model.cell == 'latent_attention':
    return [*tensors_lib.named(own, NAMES), *_maps(config.cell), *experts]
  H = config.cell.heads
  return [*tensors_lib.named(own, NAMES, {'ssm_a': (H, 1)}), *experts]


def _maps(cell: latent_attention.Config):
  H, C, K, P = cell.heads, cell.kv_rank, cell.key_width, cell.value_width

  def by_head(x):
    return x.T.reshape(H, K + P, C)

  return [
    table.Tensor(
      'attn_k_b.weight',
      (H, C, K),
      'cell.expand.kernel',
      lambda x: by_head(x)[:, :K].swapaxes(1, 2),
    ),
    table.Tensor(
      'attn_v_b.weight',
      (H, P, C),
      'cell.expand.kernel',
      lambda x: by_head(x)[:, K:],
    ),
  ]


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
