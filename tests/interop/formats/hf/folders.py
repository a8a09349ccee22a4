"""Small folders of each architecture, with random tensors, without PyTorch.

Names and shapes are written here again, not taken from the code's tables.
"""

import dataclasses
import json

import numpy as np
import safetensors

from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.interop.formats import hf
from tests.support import bundles

V = 61
LLAMA = {
  'model_type': 'llama',
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 3,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 6,
  'rms_norm_eps': 1e-4,
  'rope_theta': 100.0,
  'max_position_embeddings': 32,
  'eos_token_id': 5,
  'tie_word_embeddings': False,
}
LLAMA3 = {  # of three frequencies: kept, between, slowed down
  'rope_type': 'llama3',
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 40,
}
YARN = {  # kept, between, slowed down
  'rope_type': 'yarn',
  'factor': 4.0,
  'beta_fast': 3.0,
  'beta_slow': 0.5,
  'original_max_position_embeddings': 40,
}
LLAMA_LAYER = {
  'input_layernorm': (12,),
  'post_attention_layernorm': (12,),
  'self_attn.q_proj': (24, 12),
  'self_attn.k_proj': (12, 12),
  'self_attn.v_proj': (12, 12),
  'self_attn.o_proj': (12, 24),
  'mlp.gate_proj': (20, 12),
  'mlp.up_proj': (20, 12),
  'mlp.down_proj': (12, 20),
}


def draw(shapes, seed=0):
  rng = np.random.default_rng(seed)
  return {
    name: rng.normal(0, 0.3, shape).astype(np.float32)
    for name, shape in shapes.items()
  }


def model(names, layers, head=True, width=12):
  """Tensors of a model from the shapes of each of its layers.

  `names` are those of the embedding, the last norm and the layers' prefix.
  """
  embedding, norm, prefix = names
  shapes = {f'{embedding}.weight': (V, width), f'{norm}.weight': (width,)}
  if head:
    shapes['lm_head.weight'] = V, width
  for n, layer in enumerate(layers):
    shapes |= {f'{prefix}.{n}.{name}': shape for name, shape in layer.items()}
  return draw(shapes)


def weights(shapes):
  return {f'{name}.weight': shape for name, shape in shapes.items()}


OF_LLAMA = 'model.embed_tokens', 'model.norm', 'model.layers'
OF_MAMBA = 'backbone.embeddings', 'backbone.norm_f', 'backbone.layers'
OF_FLA = 'model.embeddings', 'model.norm', 'model.layers'


def llama(layers=3, biases=(), norms=()):
  """Tensors of LLAMA; `biases` are the matrices that have one.

  `norms` are scales of heads.
  """
  layer = weights(LLAMA_LAYER | {f'self_attn.{name}': (6,) for name in norms})
  for name, shape in LLAMA_LAYER.items():
    if name.rpartition('.')[2] in biases:
      layer[f'{name}.bias'] = shape[:1]
  return model(OF_LLAMA, layers * [layer])


MIXTRAL = LLAMA | {
  'model_type': 'mixtral',
  'num_local_experts': 5,
  'num_experts_per_tok': 2,
  'sliding_window': 5,
}
QWEN3_MOE = LLAMA | {
  'model_type': 'qwen3_moe',
  'intermediate_size': 99,  # of layers without experts
  'moe_intermediate_size': 20,
  'num_experts': 5,
  'num_experts_per_tok': 3,
  'norm_topk_prob': False,
}


def experts(qwen):
  """Tensors of MIXTRAL or QWEN3_MOE."""
  state = llama(norms=('q_norm', 'k_norm') if qwen else ())
  state = {name: x for name, x in state.items() if '.mlp.' not in name}
  part = 'mlp' if qwen else 'block_sparse_moe'
  names = ('gate_proj', 'up_proj', 'down_proj') if qwen else ('w1', 'w3', 'w2')
  shapes = {}
  for n in range(3):
    prefix = f'model.layers.{n}.{part}'
    shapes[f'{prefix}.gate.weight'] = 5, 12
    for e in range(5):
      for name, shape in zip(names, [(20, 12)] * 2 + [(12, 20)], strict=True):
        shapes[f'{prefix}.experts.{e}.{name}.weight'] = shape
  return state | draw(shapes, seed=1)


def joined(state):
  """Tensors with those of a layer's 5 experts in two."""
  state = {
    name.replace('block_sparse_moe', 'mlp')
    .replace('w1', 'gate_proj')
    .replace('w3', 'up_proj')
    .replace('w2', 'down_proj'): x
    for name, x in state.items()
  }
  layers = {name.rpartition('.0.')[0] for name in state if '.experts.0' in name}
  for prefix in layers:
    gate, up, down = (
      np.stack([state.pop(f'{prefix}.{e}.{k}_proj.weight') for e in range(5)])
      for k in ('gate', 'up', 'down')
    )
    state[f'{prefix}.gate_up_proj'] = np.concatenate([gate, up], 1)
    state[f'{prefix}.down_proj'] = down
  return state


MAMBA2 = {
  'model_type': 'mamba2',
  'vocab_size': V,
  'hidden_size': 12,
  'num_hidden_layers': 2,
  'num_heads': 4,
  'head_dim': 6,
  'expand': 2,
  'state_size': 5,
  'n_groups': 2,
  'conv_kernel': 3,
  'layer_norm_epsilon': 1e-4,
  'time_step_limit': [0.0, float('inf')],
}
MAMBA2_LAYER = {
  'norm.weight': (12,),
  'mixer.in_proj.weight': (72, 12),
  'mixer.conv1d.weight': (44, 1, 3),
  'mixer.conv1d.bias': (44,),
  'mixer.dt_bias': (4,),
  'mixer.A_log': (4,),
  'mixer.D': (4,),
  'mixer.norm.weight': (24,),
  'mixer.out_proj.weight': (12, 24),
}


def mamba2():
  """Tensors of MAMBA2."""
  return model(OF_MAMBA, 2 * [MAMBA2_LAYER])


MAMBA = {
  'model_type': 'mamba',
  'vocab_size': V,
  'hidden_size': 12,
  'num_hidden_layers': 2,
  'expand': 2,
  'state_size': 5,
  'time_step_rank': 3,
  'conv_kernel': 3,
  'layer_norm_epsilon': 1e-4,
}
MAMBA_LAYER = {
  'norm.weight': (12,),
  'mixer.in_proj.weight': (48, 12),
  'mixer.conv1d.weight': (24, 1, 3),
  'mixer.conv1d.bias': (24,),
  'mixer.x_proj.weight': (13, 24),
  'mixer.dt_proj.weight': (24, 3),
  'mixer.dt_proj.bias': (24,),
  'mixer.A_log': (24, 5),
  'mixer.D': (24,),
  'mixer.out_proj.weight': (12, 24),
}
PLAIN_MAMBA = MAMBA | {
  'time_step_rank': 'auto',
  'use_conv_bias': False,
  'tie_word_embeddings': False,
}
PLAIN_LAYER = {
  'mixer.x_proj.weight': (11, 24),
  'mixer.dt_proj.weight': (24, 1),
}


def mamba(plain=False):
  """Tensors of MAMBA, or of PLAIN_MAMBA."""
  layer = MAMBA_LAYER | (PLAIN_LAYER if plain else {})
  if plain:
    del layer['mixer.conv1d.bias']
  return model(OF_MAMBA, 2 * [layer], head=plain)


XLSTM = {
  'model_type': 'xlstm',
  'vocab_size': V,
  'hidden_size': 12,
  'num_blocks': 2,
  'num_heads': 2,
  'qk_dim_factor': 0.5,
  'v_dim_factor': 1.34,
  'ffn_proj_factor': 1.6,
  'ffn_round_up_to_multiple_of': 4,
  'gate_soft_cap': 2.0,
  'output_logit_soft_cap': 3.0,
  'eps': 0.1,
  'norm_eps': 1e-4,
}
XLSTM_LAYER = {
  'norm_mlstm.weight': (12,),
  'norm_ffn.weight': (12,),
  'mlstm_layer.q.weight': (6, 12),
  'mlstm_layer.k.weight': (6, 12),
  'mlstm_layer.v.weight': (16, 12),
  'mlstm_layer.ogate_preact.weight': (16, 12),
  'mlstm_layer.igate_preact.weight': (2, 12),
  'mlstm_layer.igate_preact.bias': (2,),
  'mlstm_layer.fgate_preact.weight': (2, 12),
  'mlstm_layer.fgate_preact.bias': (2,),
  'mlstm_layer.multihead_norm.weight': (16,),
  'mlstm_layer.out_proj.weight': (12, 16),
  'ffn.proj_up_gate.weight': (20, 12),
  'ffn.proj_up.weight': (20, 12),
  'ffn.proj_down.weight': (12, 20),
}


def xlstm():
  """Tensors of XLSTM, whose input gates are 1 or more: then m is ours."""
  names = 'backbone.embeddings', 'backbone.out_norm', 'backbone.blocks'
  state = model(names, 2 * [XLSTM_LAYER])
  gates = {
    k: x + 5 for k, x in state.items() if k.endswith('igate_preact.bias')
  }
  return state | gates


DELTA = {
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 2,
  'num_heads': 2,
  'conv_size': 3,
  'norm_eps': 1e-4,
}
DELTANET = DELTA | {'model_type': 'delta_net', 'expand_v': 0.5}
GATED_DELTANET = DELTA | {
  'model_type': 'gated_deltanet',
  'head_dim': 6,
  'expand_v': 1.5,
  'allow_neg_eigval': True,
}


def deltanet(values, gated):
  """Tensors of (GATED_)DELTANET with heads of `values` values and 6 keys."""
  inner = 2 * values
  layer = {
    'attn_norm': (12,),
    'mlp_norm': (12,),
    'attn.q_proj': (12, 12),
    'attn.k_proj': (12, 12),
    'attn.v_proj': (inner, 12),
    'attn.b_proj': (2, 12),
    'attn.q_conv1d': (12, 1, 3),
    'attn.k_conv1d': (12, 1, 3),
    'attn.v_conv1d': (inner, 1, 3),
    'attn.o_norm': (values,),
    'attn.o_proj': (12, inner),
    'mlp.gate_proj': (20, 12),
    'mlp.up_proj': (20, 12),
    'mlp.down_proj': (12, 20),
  }
  if not gated:
    return model(OF_FLA, 2 * [weights(layer)])
  layer |= {'attn.a_proj': (2, 12), 'attn.g_proj': (inner, 12)}
  rates = {'attn.A_log': (2,), 'attn.dt_bias': (2,)}
  return model(OF_FLA, 2 * [weights(layer) | rates])


GLA = {
  'model_type': 'gla',
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 2,
  'num_heads': 2,
  'expand_k': 0.5,
  'expand_v': 1.5,
  'norm_eps': 1e-4,
}
GLA_LAYER = {
  'attn_norm.weight': (12,),
  'mlp_norm.weight': (12,),
  'attn.q_proj.weight': (6, 12),
  'attn.k_proj.weight': (6, 12),
  'attn.v_proj.weight': (18, 12),
  'attn.g_proj.weight': (18, 12),
  'attn.gk_proj.0.weight': (16, 12),
  'attn.gk_proj.1.weight': (6, 16),
  'attn.gk_proj.1.bias': (6,),
  'attn.g_norm_swish_gate.weight': (9,),
  'attn.o_proj.weight': (12, 18),
  'mlp.gate_proj.weight': (20, 12),
  'mlp.up_proj.weight': (20, 12),
  'mlp.down_proj.weight': (12, 20),
}


def gla():
  """Tensors of GLA."""
  return model(OF_FLA, 2 * [GLA_LAYER])


RWKV7 = {
  'model_type': 'rwkv7',
  'vocab_size': V,
  'hidden_size': 12,
  'hidden_ratio': 1.5,
  'num_hidden_layers': 3,
  'head_dim': 6,
  'value_dim': 24,
  'decay_low_rank_dim': 5,
  'a_low_rank_dim': 4,
  'gate_low_rank_dim': 7,
  'v_low_rank_dim': 3,
  'norm_eps': 1e-4,
  'fuse_norm': False,
}
RWKV7_LAYER = {
  'attn_norm.weight': (12,),
  'attn_norm.bias': (12,),
  'ffn_norm.weight': (12,),
  'ffn_norm.bias': (12,),
  **{f'attn.x_{part}': (1, 1, 12) for part in 'rwkvag'},
  'attn.k_k': (12,),
  'attn.k_a': (12,),
  'attn.r_k': (2, 6),
  'attn.r_proj.weight': (12, 12),
  'attn.k_proj.weight': (12, 12),
  'attn.v_proj.weight': (24, 12),
  'attn.o_proj.weight': (12, 24),
  'attn.w_lora.lora.0.weight': (5, 12),
  'attn.w_lora.lora.2.weight': (12, 5),
  'attn.w_lora.lora.2.bias': (12,),
  'attn.a_lora.lora.0.weight': (4, 12),
  'attn.a_lora.lora.2.weight': (12, 4),
  'attn.a_lora.lora.2.bias': (12,),
  'attn.g_lora.lora.0.weight': (7, 12),
  'attn.g_lora.lora.2.weight': (24, 7),
  'attn.g_norm.weight': (24,),
  'attn.g_norm.bias': (24,),
  'ffn.x_k': (12,),
  'ffn.key.weight': (32, 12),
  'ffn.value.weight': (12, 32),
}
RWKV7_MIX = {  # of all layers but the first
  'attn.v_lora.lora.0.weight': (3, 12),
  'attn.v_lora.lora.2.weight': (24, 3),
  'attn.v_lora.lora.2.bias': (24,),
}


def rwkv7(keys=RWKV7):
  """Tensors of RWKV7, or of a variant."""
  own = {
    'attn.a_lora.lora.0.weight': (keys['a_low_rank_dim'], 12),
    'attn.a_lora.lora.2.weight': (12, keys['a_low_rank_dim']),
  }
  if inner := keys.get('intermediate_size'):
    own |= {'ffn.key.weight': (inner, 12), 'ffn.value.weight': (12, inner)}
  first = RWKV7_LAYER | own
  rest = (keys['num_hidden_layers'] - 1) * [first | RWKV7_MIX]
  if keys.get('norm_first', True):
    first |= {'pre_norm.weight': (12,), 'pre_norm.bias': (12,)}
  return model(OF_FLA, [first, *rest]) | draw({'model.norm.bias': (12,)}, 1)


RECURRENT_GEMMA = {
  'model_type': 'recurrent_gemma',
  'vocab_size': V,
  'hidden_size': 24,
  'intermediate_size': 40,
  'num_hidden_layers': 5,
  'num_attention_heads': 3,
  'num_key_value_heads': 1,
  'lru_width': 12,
  'attention_window_size': 6,
  'conv1d_width': 3,
  'logits_soft_cap': 2.5,
  'rms_norm_eps': 1e-4,
  'rope_theta': 100.0,
  'partial_rotary_factor': 0.5,
  'block_types': ['recurrent', 'recurrent', 'attention'],
  'tie_word_embeddings': True,
}
RECURRENT = {
  'linear_x.weight': (12, 24),
  'linear_x.bias': (12,),
  'linear_y.weight': (12, 24),
  'linear_y.bias': (12,),
  'linear_out.weight': (24, 12),
  'linear_out.bias': (24,),
  'conv_1d.weight': (12, 1, 3),
  'conv_1d.bias': (12,),
  'rg_lru.recurrent_param': (12,),
  'rg_lru.recurrent_gate_weight': (3, 4, 4),
  'rg_lru.recurrent_gate_bias': (3, 4),
  'rg_lru.input_gate_weight': (3, 4, 4),
  'rg_lru.input_gate_bias': (3, 4),
}
LOCAL_ATTENTION = {
  'q_proj.weight': (24, 24),
  'k_proj.weight': (8, 24),
  'v_proj.weight': (8, 24),
  'o_proj.weight': (24, 24),
  'o_proj.bias': (24,),
}
RECURRENT_GEMMA_LAYER = {
  'temporal_pre_norm.weight': (24,),
  'channel_pre_norm.weight': (24,),
  'mlp_block.gate_proj.weight': (20, 24),
  'mlp_block.gate_proj.bias': (20,),
  'mlp_block.up_proj.weight': (20, 24),
  'mlp_block.up_proj.bias': (20,),
  'mlp_block.down_proj.weight': (24, 20),
  'mlp_block.down_proj.bias': (24,),
}


def recurrent_gemma(kinds='rrarr'):
  """Tensors of RECURRENT_GEMMA; `kinds` is a letter for each layer."""
  layers = [
    RECURRENT_GEMMA_LAYER
    | {
      f'temporal_block.{name}': shape
      for name, shape in {'r': RECURRENT, 'a': LOCAL_ATTENTION}[kind].items()
    }
    for kind in kinds
  ]
  names = 'model.embed_tokens', 'model.final_norm', 'model.layers'
  return model(names, layers, head=False, width=24)


QWEN3_NEXT = {
  'model_type': 'qwen3_next',
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 4,
  'layer_types': ['linear_attention', 'full_attention'] * 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 8,
  'linear_num_key_heads': 2,
  'linear_num_value_heads': 4,
  'linear_key_head_dim': 5,
  'linear_value_head_dim': 6,
  'linear_conv_kernel_dim': 3,
  'moe_intermediate_size': 7,
  'shared_expert_intermediate_size': 9,
  'num_experts': 5,
  'num_experts_per_tok': 3,
  'norm_topk_prob': True,
  'rms_norm_eps': 1e-4,
  'rope_theta': 100.0,
  'partial_rotary_factor': 0.25,
  'max_position_embeddings': 32,
}
GATED_ATTENTION = {
  'self_attn.q_proj': (64, 12),
  'self_attn.k_proj': (16, 12),
  'self_attn.v_proj': (16, 12),
  'self_attn.o_proj': (12, 32),
  'self_attn.q_norm': (8,),
  'self_attn.k_norm': (8,),
}
LINEAR_ATTENTION = {
  'linear_attn.in_proj_qkvz': (68, 12),
  'linear_attn.in_proj_ba': (8, 12),
  'linear_attn.conv1d': (44, 1, 3),
  'linear_attn.norm': (6,),
  'linear_attn.out_proj': (12, 24),
}
SHARED_EXPERT = {
  'mlp.gate': (5, 12),
  'mlp.shared_expert.gate_proj': (9, 12),
  'mlp.shared_expert.up_proj': (9, 12),
  'mlp.shared_expert.down_proj': (12, 9),
  'mlp.shared_expert_gate': (1, 12),
}


def qwen3_next(kinds='lflf', experts=5):
  """Tensors of QWEN3_NEXT; `kinds` is a letter for each layer."""
  inner, layers = 7 if experts else 20, []
  mlp = {'gate_proj': (inner, 12), 'up_proj': (inner, 12)}
  mlp['down_proj'] = 12, inner
  for kind in kinds:
    own = {'input_layernorm': (12,), 'post_attention_layernorm': (12,)}
    own |= LINEAR_ATTENTION if kind == 'l' else GATED_ATTENTION
    own |= SHARED_EXPERT if experts else {f'mlp.{k}': x for k, x in mlp.items()}
    for e in range(experts):
      own |= {f'mlp.experts.{e}.{name}': shape for name, shape in mlp.items()}
    layers.append(weights(own))
    if kind == 'l':
      layers[-1] |= {'linear_attn.A_log': (4,), 'linear_attn.dt_bias': (4,)}
  return model(OF_LLAMA, layers)


KIMI_LINEAR = {
  'model_type': 'kimi_linear',
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 4,
  'layer_types': ['linear_attention', 'full_attention'] * 2,
  'mlp_layer_types': ['dense', *3 * ['sparse']],
  'linear_num_heads': 2,
  'linear_head_dim': 5,
  'linear_conv_kernel_dim': 3,
  'num_attention_heads': 3,
  'qk_nope_head_dim': 4,
  'qk_rope_head_dim': 3,
  'v_head_dim': 5,
  'kv_lora_rank': 7,
  'q_lora_rank': 6,
  'attention_bias': True,
  'moe_intermediate_size': 7,
  'num_shared_experts': 2,
  'num_experts': 6,
  'num_experts_per_token': 2,
  'num_expert_group': 3,
  'topk_group': 2,
  'moe_renormalize': True,
  'routed_scaling_factor': 1.7,
  'rms_norm_eps': 1e-4,
  'model_max_length': 32,
}
KIMI_DELTA = {
  **{f'{part}_proj.weight': (10, 12) for part in 'qkv'},
  **{f'{part}_conv1d.weight': (10, 1, 3) for part in 'qkv'},
  **{f'{part}_a_proj.weight': (5, 12) for part in 'fg'},
  **{f'{part}_b_proj.weight': (10, 5) for part in 'fg'},
  'b_proj.weight': (2, 12),
  'A_log': (1, 1, 2, 1),
  'dt_bias': (10,),
  'o_norm.weight': (5,),
  'o_proj.weight': (12, 10),
}
LATENT_ATTENTION = {
  'q_a_proj.weight': (6, 12),
  'q_a_proj.bias': (6,),
  'q_a_layernorm.weight': (6,),
  'q_b_proj.weight': (21, 6),
  'kv_a_proj_with_mqa.weight': (10, 12),
  'kv_a_proj_with_mqa.bias': (10,),
  'kv_a_layernorm.weight': (7,),
  'kv_b_proj.weight': (27, 7),
  'o_proj.weight': (12, 15),
  'o_proj.bias': (12,),
}


def kimi_linear(kinds='lflf', dense=1):
  """Tensors of KIMI_LINEAR; `kinds` is a letter for each layer."""
  layers = []
  for n, kind in enumerate(kinds):
    cell = KIMI_DELTA if kind == 'l' else LATENT_ATTENTION
    own = {f'self_attn.{name}': shape for name, shape in cell.items()}
    own |= {'input_layernorm.weight': (12,)}
    own |= {'post_attention_layernorm.weight': (12,)}
    mlps = {'mlp': 20} if n < dense else {'block_sparse_moe.shared_experts': 14}
    for name, inner in mlps.items():
      own |= {f'{name}.{x}_proj.weight': (inner, 12) for x in ('gate', 'up')}
      own[f'{name}.down_proj.weight'] = 12, inner
    if n >= dense:
      own['block_sparse_moe.gate.weight'] = 6, 12
      own['block_sparse_moe.gate.e_score_correction_bias'] = (6,)
      for e in range(6):
        name = f'block_sparse_moe.experts.{e}'
        own |= {f'{name}.{x}.weight': (7, 12) for x in ('w1', 'w3')}
        own[f'{name}.w2.weight'] = 12, 7
    layers.append(own)
  return model(OF_LLAMA, layers)


QWEN3_5 = {
  'model_type': 'qwen3_5_text',
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 4,
  'layer_types': ['linear_attention', 'full_attention'] * 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 8,
  'linear_num_key_heads': 2,
  'linear_num_value_heads': 4,
  'linear_key_head_dim': 5,
  'linear_value_head_dim': 6,
  'linear_conv_kernel_dim': 3,
  'rms_norm_eps': 1e-4,
  'rope_parameters': {
    'rope_type': 'default',
    'rope_theta': 100.0,
    'partial_rotary_factor': 0.25,
    'mrope_section': [1, 0, 0],
  },
  'max_position_embeddings': 32,
  'tie_word_embeddings': False,
}
QWEN3_5_LINEAR = {
  'linear_attn.in_proj_qkv': (44, 12),
  'linear_attn.in_proj_z': (24, 12),
  'linear_attn.in_proj_b': (4, 12),
  'linear_attn.in_proj_a': (4, 12),
  'linear_attn.conv1d': (44, 1, 3),
  'linear_attn.norm': (6,),
  'linear_attn.out_proj': (12, 24),
}
QWEN3_5_MOE = {
  name: x for name, x in QWEN3_5.items() if name != 'intermediate_size'
} | {
  'model_type': 'qwen3_5_moe_text',
  'moe_intermediate_size': 7,
  'shared_expert_intermediate_size': 9,
  'num_experts': 5,
  'num_experts_per_tok': 3,
}


def gated_mlp(inner, names=('gate_proj', 'up_proj', 'down_proj'), width=12):
  """Shapes of a gated MLP's matrices."""
  shapes = (inner, width), (inner, width), (width, inner)
  return dict(zip(names, shapes, strict=True))


def within(prefix, shapes):
  return {f'{prefix}.{name}': shape for name, shape in shapes.items()}


def qwen3_5(experts=0):
  """Tensors of QWEN3_5, or of QWEN3_5_MOE with 5 experts."""
  layers = []
  for kind in 'lflf':
    own = {'input_layernorm': (12,), 'post_attention_layernorm': (12,)}
    own |= QWEN3_5_LINEAR if kind == 'l' else GATED_ATTENTION
    own |= SHARED_EXPERT if experts else within('mlp', gated_mlp(20))
    for e in range(experts):
      own |= within(f'mlp.experts.{e}', gated_mlp(7))
    layers.append(weights(own))
    if kind == 'l':
      layers[-1] |= {'linear_attn.A_log': (4,), 'linear_attn.dt_bias': (4,)}
  return model(OF_LLAMA, layers)


def with_images(keys, state):
  """(Keys, tensors) of a model that reads images too, of its text part's."""
  keys = {
    'model_type': keys['model_type'].removesuffix('_text'),
    'architectures': ['Qwen3_5ForConditionalGeneration'],
    'tie_word_embeddings': keys['tie_word_embeddings'],
    'text_config': keys,
    'vision_config': {'hidden_size': 8},
  }
  state = {
    name.replace('model.', 'model.language_model.'): x
    for name, x in state.items()
  }
  return keys, state | draw({'model.visual.blocks.0.norm1.weight': (8,)})


HYBRID_ATTENTION = {
  'q_proj': (12, 12),
  'k_proj': (4, 12),
  'v_proj': (4, 12),
  'o_proj': (12, 12),
}
HYBRID_MAMBA2 = {  # of 4 heads of 6, in 2 groups with keys of 5
  'in_proj.weight': (72, 12),
  'conv1d.weight': (44, 1, 3),
  'conv1d.bias': (44,),
  'dt_bias': (4,),
  'A_log': (4,),
  'D': (4,),
  'norm.weight': (24,),
  'out_proj.weight': (12, 24),
}
HYBRID = {
  'vocab_size': V,
  'hidden_size': 12,
  'num_attention_heads': 3,
  'num_key_value_heads': 1,
  'mamba_n_heads': 4,
  'mamba_d_head': 6,
  'mamba_n_groups': 2,
  'mamba_d_state': 5,
  'mamba_d_conv': 3,
  'rms_norm_eps': 1e-4,
  'rope_theta': 100.0,
  'max_position_embeddings': 32,
  'tie_word_embeddings': False,
}
GRANITE = HYBRID | {
  'model_type': 'granitemoehybrid',
  'num_hidden_layers': 4,
  'layer_types': ['mamba', 'attention'] * 2,
  'intermediate_size': 7,
  'shared_intermediate_size': 9,
  'num_local_experts': 5,
  'num_experts_per_tok': 3,
  'position_embedding_type': 'rope',
  'embedding_multiplier': 12,
  'residual_multiplier': 0.22,
  'attention_multiplier': 0.015625,
  'logits_scaling': 49.0,
}


def granite(experts=5):
  """Tensors of GRANITE."""
  layers = []
  for kind in 'mama':
    own = {'input_layernorm': (12,), 'post_attention_layernorm': (12,)}
    own['shared_mlp.input_linear'] = 18, 12
    own['shared_mlp.output_linear'] = 12, 9
    if experts:
      own['block_sparse_moe.input_linear'] = experts, 14, 12
      own['block_sparse_moe.output_linear'] = experts, 12, 7
      own['block_sparse_moe.router.layer'] = experts, 12
    if kind == 'a':
      own |= within('self_attn', HYBRID_ATTENTION)
    layers.append(weights(own))
    if kind == 'm':
      layers[-1] |= within('mamba', HYBRID_MAMBA2)
  return model(OF_LLAMA, layers)


BAMBA = HYBRID | {
  'model_type': 'bamba',
  'intermediate_size': 20,
  'num_hidden_layers': 3,
  'attn_layer_indices': [1],
}
OF_BAMBA = 'model.embed_tokens', 'model.final_layernorm', 'model.layers'


def bamba():
  """Tensors of BAMBA."""
  layers = []
  for kind in 'mam':
    own = {'input_layernorm': (12,), 'pre_ff_layernorm': (12,)}
    own |= within('feed_forward', gated_mlp(20))
    if kind == 'a':
      own |= within('self_attn', HYBRID_ATTENTION)
    layers.append(weights(own))
    if kind == 'm':
      layers[-1] |= within('mamba', HYBRID_MAMBA2)
  return model(OF_BAMBA, layers)


LFM2 = {
  'model_type': 'lfm2',
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 28,
  'block_auto_adjust_ff_dim': True,
  'block_multiple_of': 4,
  'num_hidden_layers': 3,
  'layer_types': ['conv', 'full_attention', 'conv'],
  'num_attention_heads': 3,
  'num_key_value_heads': 1,
  'conv_L_cache': 4,
  'norm_eps': 1e-4,
  'rope_theta': 100.0,
  'max_position_embeddings': 32,
}
LFM2_MOE = LFM2 | {
  'model_type': 'lfm2_moe',
  'intermediate_size': 20,
  'num_dense_layers': 1,
  'moe_intermediate_size': 7,
  'num_experts': 5,
  'num_experts_per_tok': 3,
  'routed_scaling_factor': 1.5,
}
LFM2_ATTENTION = {
  'q_proj': (12, 12),
  'k_proj': (4, 12),
  'v_proj': (4, 12),
  'out_proj': (12, 12),
  'q_layernorm': (4,),
  'k_layernorm': (4,),
}
LFM2_CONVOLUTION = {
  'in_proj': (36, 12),
  'conv': (12, 1, 4),
  'out_proj': (12, 12),
}


def lfm2(experts=0):
  """Tensors of LFM2, or of LFM2_MOE with 5 experts."""
  layers, names = [], ('w1', 'w3', 'w2')
  for n, kind in enumerate('cac'):
    own = {'operator_norm': (12,), 'ffn_norm': (12,)}
    if kind == 'c':
      own |= within('conv', LFM2_CONVOLUTION)
    else:
      own |= within('self_attn', LFM2_ATTENTION)
    if not experts or not n:
      own |= within('feed_forward', gated_mlp(20, names))
    else:
      own['feed_forward.gate'] = experts, 12
      for e in range(experts):
        own |= within(f'feed_forward.experts.{e}', gated_mlp(7, names))
    layers.append(weights(own))
    if experts and n:
      layers[-1]['feed_forward.expert_bias'] = (experts,)
  names = 'model.embed_tokens', 'model.embedding_norm', 'model.layers'
  return model(names, layers, head=False)


FALCON_H1 = HYBRID | {
  'model_type': 'falcon_h1',
  'intermediate_size': 20,
  'num_hidden_layers': 2,
  'mamba_d_ssm': 24,
  'mamba_rms_norm': True,
  'mamba_norm_before_gate': False,
  'embedding_multiplier': 5.65,
  'lm_head_multiplier': 0.0390625,
  'mlp_multipliers': [0.8838, 0.5859],
  'key_multiplier': 0.3906,
  'attention_in_multiplier': 1.0,
  'attention_out_multiplier': 0.9375,
  'ssm_in_multiplier': 1.25,
  'ssm_multipliers': [0.3535, 0.25, 0.3535, 0.5, 0.3535],
  'ssm_out_multiplier': 0.2357,
}


def falcon_h1():
  """Tensors of FALCON_H1."""
  own = {'input_layernorm': (12,), 'pre_ff_layernorm': (12,)}
  own |= within('self_attn', HYBRID_ATTENTION)
  own |= within('feed_forward', gated_mlp(20))
  layer = weights(own) | within('mamba', HYBRID_MAMBA2)
  return model(OF_BAMBA, 2 * [layer])


JAMBA = {
  'model_type': 'jamba',
  'vocab_size': V,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 4,
  'num_attention_heads': 3,
  'num_key_value_heads': 1,
  'attn_layer_period': 4,
  'attn_layer_offset': 2,
  'expert_layer_period': 2,
  'expert_layer_offset': 1,
  'num_experts': 5,
  'num_experts_per_tok': 3,
  'mamba_d_state': 5,
  'mamba_d_conv': 3,
  'mamba_dt_rank': 3,
  'rms_norm_eps': 1e-4,
  'max_position_embeddings': 32,
  'tie_word_embeddings': False,
}


def jamba():
  """Tensors of JAMBA."""
  layers = []
  mamba = {
    name.removeprefix('mixer.'): shape
    for name, shape in MAMBA_LAYER.items()
    if name.startswith('mixer.')
  }
  norms = {'dt_layernorm': (3,), 'b_layernorm': (5,), 'c_layernorm': (5,)}
  for n, kind in enumerate('mmam'):
    own = {'input_layernorm': (12,), 'pre_ff_layernorm': (12,)}
    if n % 2:
      own['feed_forward.router'] = 5, 12
      for e in range(5):
        own |= within(f'feed_forward.experts.{e}', gated_mlp(20))
    else:
      own |= within('feed_forward', gated_mlp(20))
    if kind == 'a':
      own |= within('self_attn', HYBRID_ATTENTION)
    layers.append(weights(own))
    if kind == 'm':
      layers[-1] |= within('mamba', mamba | weights(norms))
  return model(OF_BAMBA, layers)


NEMOTRON_H = {
  'model_type': 'nemotron_h',
  'vocab_size': V,
  'hidden_size': 12,
  'hybrid_override_pattern': 'MM-*E',
  'intermediate_size': 20,
  'num_attention_heads': 3,
  'num_key_value_heads': 1,
  'head_dim': 4,
  'mamba_num_heads': 4,
  'mamba_head_dim': 6,
  'n_groups': 2,
  'ssm_state_size': 5,
  'conv_kernel': 3,
  'n_routed_experts': 6,
  'num_experts_per_tok': 2,
  'n_group': 3,
  'topk_group': 2,
  'moe_intermediate_size': 7,
  'moe_shared_expert_intermediate_size': 9,
  'routed_scaling_factor': 2.5,
  'layer_norm_epsilon': 1e-4,
  'max_position_embeddings': 32,
  'tie_word_embeddings': False,
}


def nemotron_h(kinds='MM-*E'):
  """Tensors of NEMOTRON_H; `kinds` is a letter for each block."""
  layers = []
  for kind in kinds:
    own = {'norm': (12,)}
    if kind == '*':
      own |= within('mixer', HYBRID_ATTENTION)
    if kind == '-':
      own |= {'mixer.up_proj': (20, 12), 'mixer.down_proj': (12, 20)}
    if kind == 'E':
      own['mixer.gate'] = 6, 12
      parts = {f'experts.{e}': 7 for e in range(6)} | {'shared_experts': 9}
      for part, inner in parts.items():
        own[f'mixer.{part}.up_proj'] = inner, 12
        own[f'mixer.{part}.down_proj'] = 12, inner
    layers.append(weights(own))
    if kind == 'M':
      layers[-1] |= within('mixer', HYBRID_MAMBA2)
    if kind == 'E':
      layers[-1]['mixer.gate.e_score_correction_bias'] = (6,)
  return model(OF_MAMBA, layers)


ZAMBA2 = {
  'model_type': 'zamba2',
  'vocab_size': V,
  'hidden_size': 12,
  'layers_block_type': ['mamba', 'hybrid', 'hybrid', 'mamba', 'hybrid'],
  'intermediate_size': 10,
  'num_attention_heads': 3,
  'num_mem_blocks': 2,
  'use_shared_attention_adapter': True,
  'adapter_rank': 2,
  'n_mamba_heads': 4,
  'mamba_ngroups': 2,
  'mamba_d_state': 5,
  'mamba_d_conv': 3,
  'rms_norm_eps': 1e-4,
  'max_position_embeddings': 32,
}


def zamba2():
  """Tensors of ZAMBA2."""
  layers, uses = [], [1, 2, 4]
  for n in range(5):
    own = weights({'input_layernorm': (12,)}) | within('mamba', HYBRID_MAMBA2)
    if n in uses:
      own = within('mamba_decoder', own) | {'linear.weight': (12, 12)}
    if n in uses[:2]:
      block = {'input_layernorm': (24,), 'pre_ff_layernorm': (12,)}
      for part in 'qkv':
        block[f'self_attn.{part}_proj'] = 24, 24
      block['self_attn.o_proj'] = 12, 24
      block['feed_forward.gate_up_proj'] = 20, 12
      block['feed_forward.down_proj'] = 12, 10
      for use in range(uses.index(n), 3, 2):
        for part in 'qkv':
          adapter = f'self_attn.linear_{part}_adapter_list.{use}'
          block |= {f'{adapter}.0': (2, 24), f'{adapter}.1': (24, 2)}
        adapter = f'feed_forward.gate_up_proj_adapter_list.{use}'
        block |= {f'{adapter}.0': (2, 12), f'{adapter}.1': (20, 2)}
      own |= within('shared_transformer', weights(block))
    layers.append(own)
  return model(OF_BAMBA, layers, head=False)


def write(folder, keys, state, shards=1):
  """Writes a folder, as transformers does."""
  folder.mkdir(exist_ok=True)
  (folder / 'config.json').write_text(json.dumps(keys))
  if shards == 1:
    tensors.write(folder / 'model.safetensors', state)
    return folder
  where, names = {}, sorted(state)
  for n in range(shards):
    own = f'model-{n + 1:05}-of-{shards:05}.safetensors'
    where |= dict.fromkeys(names[n::shards], own)
    tensors.write(folder / own, {k: state[k] for k in names[n::shards]})
  index = {'metadata': {}, 'weight_map': where}
  (folder / 'model.safetensors.index.json').write_text(json.dumps(index))
  return folder


def read(folder, **given):
  return hf.read(request.Source(folder, **given))


def export(bundle, path, **options):
  hf.write(bundle, request.Target(path, **options))
  return path


def stored(folder):
  """All tensors of a folder by name."""
  paths = sorted(folder.glob('*.safetensors'))
  return {k: x for path in paths for k, x in tensors.read(path).items()}


def dtypes(folder):
  """Those of a folder of one file, as it names them."""
  with safetensors.safe_open(folder / 'model.safetensors', 'numpy') as file:
    return {name: file.get_slice(name).get_dtype() for name in [*file.keys()]}


def assert_comes_back(bundle, folder, known=None):
  """Exported as it came, and as its config alone describes it.

  `known` is what is kept of the keys, where others have such a model too.
  """
  kept = export(bundle, folder.with_name('kept'))
  assert_same(kept, folder)
  texts = {'config.json': json.dumps(known)} if known else {}
  made = dataclasses.replace(bundle, kept=texts)
  made = export(made, folder.with_name('made'))
  assert_same(made, folder)
  bundles.assert_same(read(made), bundle)
  before, after = (
    json.loads((path / 'config.json').read_text()) for path in (folder, kept)
  )
  assert {name: after[name] for name in before} == before


def assert_same(a, b):
  """Two folders have the same tensors, bit for bit."""
  a, b = stored(a), stored(b)
  assert sorted(a) == sorted(b)
  for name, x in a.items():
    np.testing.assert_array_equal(x, b[name], name)
