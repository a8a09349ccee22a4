"""A small model of each architecture, as a config.json describes it.

Sizes are those that llama.cpp's kernels take: heads of RWKV-7 are 64 wide.
"""

import dataclasses
import json
import pathlib

import jax
import numpy as np

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import request
from rnn_jax.interop.formats import gguf as gguf_format
from rnn_jax.interop.formats.hf import architectures
from rnn_jax.interop.formats.hf import config_json
from rnn_jax.runs import bundle as bundle_lib

V = 61
LLAMA = {
  'model_type': 'llama',
  'hidden_size': 64,
  'intermediate_size': 96,
  'num_hidden_layers': 3,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 24,
  'rms_norm_eps': 1e-5,
  'rope_theta': 500.0,
  'max_position_embeddings': 64,
}
QWEN = LLAMA | {'head_dim': 16}
SCALED = {  # some frequencies kept, some between, some slowed down
  'rope_type': 'llama3',
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 128,
}
YARN = {
  'rope_type': 'yarn',
  'factor': 4.0,
  'original_max_position_embeddings': 256,
}
EXPERTS = {'moe_intermediate_size': 32, 'num_experts_per_tok': 2}
LINEAR = {  # Gated DeltaNets and attention
  'hidden_size': 64,
  'num_hidden_layers': 4,
  'layer_types': ['linear_attention', 'full_attention'] * 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 32,
  'linear_num_key_heads': 2,
  'linear_num_value_heads': 4,
  'linear_key_head_dim': 32,
  'linear_value_head_dim': 32,
  'linear_conv_kernel_dim': 4,
  'rms_norm_eps': 1e-6,
  'rope_theta': 500.0,
  'partial_rotary_factor': 0.25,
  'max_position_embeddings': 64,
}
GRANITE = {
  'model_type': 'granitemoehybrid',
  'hidden_size': 64,
  'num_hidden_layers': 4,
  'layer_types': ['linear_attention', 'full_attention'] * 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'attention_multiplier': 0.125,
  'embedding_multiplier': 12.0,
  'residual_multiplier': 0.22,
  'logits_scaling': 0.5,
  'mamba_n_heads': 8,
  'mamba_n_groups': 2,
  'mamba_d_state': 16,
  'mamba_d_conv': 4,
  'mamba_expand': 2,
  'shared_intermediate_size': 96,
  'rope_theta': 500.0,
  'max_position_embeddings': 64,
}
LFM2 = {
  'hidden_size': 64,
  'intermediate_size': 96,
  'num_hidden_layers': 4,
  'layer_types': ['conv', 'full_attention'] * 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'conv_L_cache': 3,
  'rope_theta': 500.0,
  'max_position_embeddings': 64,
}
FALCON_H1 = {
  'model_type': 'falcon_h1',
  'hidden_size': 64,
  'intermediate_size': 96,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 16,
  'mamba_d_ssm': 96,
  'mamba_n_heads': 6,
  'mamba_n_groups': 2,
  'mamba_d_state': 16,
  'mamba_d_conv': 4,
  'mamba_rms_norm': False,
  'rope_theta': 500.0,
  'embedding_multiplier': 5.5,
  'lm_head_multiplier': 0.4,
  'attention_in_multiplier': 1.5,
  'attention_out_multiplier': 0.6,
  'key_multiplier': 0.7,
  'ssm_in_multiplier': 1.25,
  'ssm_out_multiplier': 0.8,
  'ssm_multipliers': [0.3, 0.25, 0.2, 0.5, 0.35],
  'mlp_multipliers': [0.9, 0.75],
  'max_position_embeddings': 64,
}
CASES = {
  'llama': LLAMA,
  'llama, scaled': LLAMA | {'rope_scaling': SCALED},
  'llama, YaRN': LLAMA | {'rope_scaling': YARN},
  'llama, linear, biased, tied': LLAMA
  | {'rope_scaling': {'type': 'linear', 'factor': 2.0}, 'mlp_bias': True}
  | {'attention_bias': True, 'tie_word_embeddings': True},
  'mixtral': LLAMA
  | {'model_type': 'mixtral', 'num_local_experts': 4, 'sliding_window': None},
  'qwen2': QWEN | {'model_type': 'qwen2', 'tie_word_embeddings': True},
  'qwen3': QWEN | {'model_type': 'qwen3', 'head_dim': 32},
  'qwen3_moe': QWEN
  | EXPERTS
  | {'model_type': 'qwen3_moe', 'num_experts': 5, 'norm_topk_prob': True},
  'gpt2': {
    'model_type': 'gpt2',
    'n_layer': 2,
    'n_embd': 64,
    'n_head': 4,
    'n_inner': 96,
    'n_positions': 64,
  },
  'mamba': {
    'model_type': 'mamba',
    'hidden_size': 64,
    'num_hidden_layers': 2,
    'expand': 2,
    'state_size': 16,
    'time_step_rank': 4,
    'conv_kernel': 4,
  },
  'mamba2': {
    'model_type': 'mamba2',
    'hidden_size': 64,
    'num_hidden_layers': 2,
    'num_heads': 8,
    'head_dim': 16,
    'expand': 2,
    'state_size': 16,
    'n_groups': 2,
    'conv_kernel': 4,
  },
  'rwkv7': {
    'model_type': 'rwkv7',
    'hidden_size': 128,
    'intermediate_size': 192,
    'num_hidden_layers': 3,
    'head_dim': 64,
    'decay_low_rank_dim': 16,
    'a_low_rank_dim': 12,
    'gate_low_rank_dim': 20,
    'v_low_rank_dim': 8,
    'norm_eps': 1e-5,
    'fuse_norm': False,
  },
  'qwen3_next': {
    **LINEAR,
    'model_type': 'qwen3_next',
    'shared_expert_intermediate_size': 48,
    'num_experts': 5,
    'norm_topk_prob': True,
    **EXPERTS,
  },
  'qwen3_5': {
    **LINEAR,
    'model_type': 'qwen3_5_text',
    'intermediate_size': 96,
  },
  'qwen3_5_moe': {
    **LINEAR,
    'model_type': 'qwen3_5_moe_text',
    'shared_expert_intermediate_size': 48,
    'num_experts': 5,
    **EXPERTS,
  },
  'granite': GRANITE
  | {'num_local_experts': 0, 'position_embedding_type': 'nope'},
  'granite, experts': GRANITE
  | {'num_local_experts': 4, 'num_experts_per_tok': 2}
  | {'intermediate_size': 32, 'position_embedding_type': 'rope'},
  'lfm2': LFM2 | {'model_type': 'lfm2', 'block_auto_adjust_ff_dim': False},
  'lfm2_moe': LFM2
  | EXPERTS
  | {'model_type': 'lfm2_moe', 'num_experts': 5, 'num_dense_layers': 1},
  'jamba': {
    'model_type': 'jamba',
    'hidden_size': 64,
    'intermediate_size': 96,
    'num_hidden_layers': 4,
    'num_attention_heads': 4,
    'num_key_value_heads': 2,
    'attn_layer_period': 2,
    'attn_layer_offset': 1,
    'expert_layer_period': 2,
    'expert_layer_offset': 1,
    'num_experts': 4,
    'num_experts_per_tok': 2,
    'mamba_d_state': 16,
    'mamba_d_conv': 4,
    'mamba_dt_rank': 8,
    'max_position_embeddings': 64,
  },
  'falcon_h1': FALCON_H1,
  'falcon_h1, normed': FALCON_H1
  | {'mamba_rms_norm': True, 'mamba_norm_before_gate': False},
  'kimi_linear': {
    'model_type': 'kimi_linear',
    'hidden_size': 64,
    'intermediate_size': 96,
    'num_hidden_layers': 4,
    'layer_types': ['linear_attention', 'full_attention'] * 2,
    'mlp_layer_types': ['dense', *3 * ['sparse']],
    'linear_num_heads': 4,
    'linear_head_dim': 32,
    'linear_conv_kernel_dim': 4,
    'num_attention_heads': 4,
    'qk_nope_head_dim': 24,
    'qk_rope_head_dim': 8,
    'v_head_dim': 16,
    'kv_lora_rank': 32,
    'moe_intermediate_size': 32,
    'num_shared_experts': 2,
    'num_experts': 6,
    'num_experts_per_token': 2,
    'moe_renormalize': True,
    'routed_scaling_factor': 1.5,
    'rms_norm_eps': 1e-6,
    'model_max_length': 64,
  },
}


def config(case, size=V, **changed):
  """The Config of a case, with some keys of its config.json changed."""
  values = CASES[case] | {'vocab_size': size} | changed
  keys = keys_lib.Keys('config.json', values)
  source = request.Source(pathlib.Path())
  return config_json.read(keys, architectures.find(keys), source)


def undrawn(case, **changed):
  """A bundle without parameters."""
  tokenizer = tokenizer_lib.Numbers(V)
  return bundle_lib.Bundle(config(case, **changed), tokenizer, {})


def make(case, tokenizer=None, **changed):
  """A bundle of random parameters."""
  tokenizer = tokenizer or tokenizer_lib.Numbers(V)
  made = config(case, tokenizer.size, **changed)
  like = bundle_lib.like(made, tokenizer)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.2, x.shape).astype(np.float32), like
  )
  if case == 'rwkv7':
    _zero_first_values(params)
  bundle = bundle_lib.make(made, tokenizer, params, like)
  kept = {'config.json': json.dumps({'model_type': CASES[case]['model_type']})}
  return dataclasses.replace(bundle, kept=kept)


def _zero_first_values(params):
  """The first layer's maps of its values change nothing, and aren't written."""
  cell = params['stack']['blocks']['cell']
  for leaf in (
    cell['mix_bias'],
    cell['up_mix'],
    cell['projections_mix']['kernel'],
  ):
    leaf[0] = 0


def write(bundle, folder, **options):
  """Returns the file of an exported model, or its first part."""
  gguf_format.write(bundle, request.Target(folder, **options))
  return min(folder.glob('*.gguf'))


def read(path, **given):
  return gguf_format.read(request.Source(path, **given))


def config_of(bundle):
  """The sections of the config that describe the model."""
  named = {'model': bundle.config.model, 'cell': bundle.config.cell}
  return json.loads(
    json.dumps({k: dataclasses.asdict(x) for k, x in named.items()})
  )
