"""LFM2: short convolutions and attention, with an MLP or with experts.

A layer of convolutions is one without heads of keys. The last norm has the name
of one after the embedding, and heads divide the width. Experts are chosen by
sigmoids and a bias, and their gates sum to 1.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import lfm2 as hf_lfm2
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import rope
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import kimi_linear
from rnn_jax.interop.gguf.architectures import llama

ARCHITECTURES = {'lfm2': ('lfm2',), 'lfm2moe': ('lfm2_moe',)}
NUMBERS: dict[str, tensors_lib.Numbers] = {}
NORM = 'token_embd_norm'
NAMES = {
  **llama.ATTENTION,
  'operator_norm': 'attn_norm',
  'ffn_norm': 'ffn_norm',
  'self_attn.out_proj': 'attn_output',
  'self_attn.q_layernorm': 'attn_q_norm',
  'self_attn.k_layernorm': 'attn_k_norm',
  'conv.conv': 'shortconv.conv',
  'conv.in_proj': 'shortconv.in_proj',
  'conv.out_proj': 'shortconv.out_proj',
  'feed_forward.w1': 'ffn_gate',
  'feed_forward.w3': 'ffn_up',
  'feed_forward.w2': 'ffn_down',
  'feed_forward.gate': llama.ROUTER,
  'feed_forward.expert_bias': 'exp_probs_b.bias',
}
FIELDS = (
  fields_lib.Field('block_count', 'num_hidden_layers'),
  fields_lib.Field('embedding_length', 'hidden_size'),
  fields_lib.Field('attention.head_count', 'num_attention_heads'),
  fields_lib.Field('attention.layer_norm_rms_epsilon', 'norm_eps', 1e-5),
  fields_lib.Field('shortconv.l_cache', 'conv_L_cache'),
  llama.WIDTH,
)
EXPERTS = (
  fields_lib.Field('expert_count', 'num_experts'),
  fields_lib.Field('expert_used_count', 'num_experts_per_tok'),
  fields_lib.Field('expert_feed_forward_length', 'moe_intermediate_size'),
  fields_lib.Field('leading_dense_block_count', 'num_dense_layers', 0),
)
KEY_HEADS = kimi_linear.KEY_HEADS


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = fields_lib.read(fields, FIELDS)
  fields.absent(llama.WINDOW)
  layers = min(own['num_hidden_layers'], keys_lib.LAYERS)
  heads = max(1, own['num_attention_heads'])
  counts = fields.each(KEY_HEADS, layers)
  head = own['hidden_size'] // heads
  fields.one_of('attention.key_length', (head,), head)
  short, full = hf_lfm2.KINDS
  own |= {
    'num_key_value_heads': one_count(fields, counts, heads),
    'layer_types': [full if n else short for n in counts],
    'rope_parameters': rope.read(fields, head, file),
  }
  if fields.architecture == 'lfm2':
    return own | {'model_type': 'lfm2', hf_lfm2.ADJUSTED: False}
  fields.one_of(kimi_linear.GATING, (kimi_linear.SIGMOID,), None)
  own |= fields_lib.read(fields, EXPERTS)
  return own | {'model_type': 'lfm2_moe', 'use_expert_bias': True}


def one_count(fields: fields_lib.Fields, counts: list[int], heads: int) -> int:
  """Returns the heads of keys of all layers that have some.

  Args:
    fields: of the file.
    counts: of each layer.
    heads: of queries, where none has any.
  """
  found = {n for n in counts if n} or {heads}
  if len(found) > 1:
    fields.refuse(KEY_HEADS, counts, 'give one number for all attention')
  return min(found)


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  _, full = hf_lfm2.KINDS
  heads = theirs['num_key_value_heads']
  kinds = theirs['layer_types']
  routed = theirs['model_type'] == 'lfm2_moe'
  inner = theirs.get('intermediate_size', theirs.get('moe_intermediate_size'))
  own = fields_lib.write(theirs | {'intermediate_size': inner}, FIELDS)
  if routed:
    own |= fields_lib.write(theirs, EXPERTS)
    own[kimi_linear.GATING] = kimi_linear.SIGMOID
  return {
    **own,
    **rope.write(theirs),
    KEY_HEADS: [heads if kind == full else 0 for kind in kinds],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  routed = config.model.experts.count > 0
  shapes = {}
  if config.model.cell != 'attention':
    taps = config.model.width, config.cell.convolution
    shapes['shortconv.conv.weight'] = taps
  rows = tensors_lib.named(hf_lfm2.layer(config), NAMES, shapes)
  return rows + (tensors_lib.experts(config.model) if routed else [])


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
