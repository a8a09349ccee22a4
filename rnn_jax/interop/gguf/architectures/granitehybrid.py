"""Granite 4: Mamba-2 and attention, with multipliers.

A layer of Mamba-2 is one without heads of keys. Inside, Mamba-2 is twice as
wide; the gates of experts sum to 1. rope.scaling.finetuned says whether
attention has rotary positions, and its channels are in the order of Llama's.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import (
  granite_hybrid as hf_granite,
)
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import rope
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import lfm2
from rnn_jax.interop.gguf.architectures import llama
from rnn_jax.interop.gguf.architectures import mamba
from rnn_jax.interop.gguf.architectures import mamba2

ARCHITECTURES = {'granitehybrid': ('granitemoehybrid',)}
NUMBERS = mamba2.NUMBERS
NAMES = {
  **llama.ATTENTION,
  **{
    theirs.replace('mixer.', 'mamba.'): name
    for theirs, name in mamba2.NAMES.items()
    if theirs.startswith('mixer.')
  },
  'post_attention_layernorm': 'ffn_norm',
  'block_sparse_moe.router.layer': llama.ROUTER,
}
SHARED = {  # the MLP, and that of the experts that all tokens run
  'shared_mlp.gate': 'ffn_gate',
  'shared_mlp.up': 'ffn_up',
  'shared_mlp.output_linear': 'ffn_down',
}
FIELDS = (
  *llama.FIELDS,
  fields_lib.Field('embedding_scale', 'embedding_multiplier', 1.0),
  fields_lib.Field('residual_scale', 'residual_multiplier', 1.0),
  fields_lib.Field('logit_scale', 'logits_scaling', 1.0),
)
MIXER = (
  fields_lib.Field('ssm.conv_kernel', 'mamba_d_conv'),
  fields_lib.Field('ssm.state_size', 'mamba_d_state'),
  fields_lib.Field('ssm.time_step_rank', 'mamba_n_heads'),
  fields_lib.Field('ssm.group_count', 'mamba_n_groups'),
)
EXPERTS = (*llama.EXPERTS, llama.WIDTH)
COMMON = fields_lib.Field(
  'expert_shared_feed_forward_length', 'shared_intermediate_size'
)
SCALE, ROTATES = 'attention.scale', 'rope.scaling.finetuned'
KEY_HEADS = lfm2.KEY_HEADS


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = fields_lib.read(fields, (*FIELDS, *MIXER))
  layers = min(own['num_hidden_layers'], keys_lib.LAYERS)
  counts = fields.each(KEY_HEADS, layers)
  linear, full = hf_granite.KINDS
  heads, inner = max(1, own['num_attention_heads']), mamba.EXPAND
  fields.one_of(mamba2.INNER, (inner * own['hidden_size'],), None)
  head = own['hidden_size'] // heads
  fields.one_of('attention.key_length', (head,), head)
  if fields.flag(ROTATES, True):
    own[hf_granite.POSITIONS] = hf_granite.ROTATED
    own['rope_parameters'] = rope.read(fields, head, file)
  return (
    own
    | _mlp(fields)
    | {
      'model_type': 'granitemoehybrid',
      'mamba_expand': inner,
      'num_key_value_heads': lfm2.one_count(fields, counts, heads),
      'layer_types': [full if n else linear for n in counts],
      'attention_bias': any(
        name.endswith('attn_q.bias') for name in file.tensors
      ),
      hf_granite.SCALE: fields.number(SCALE, 0.0) or head**-0.5,
    }
  )


def _mlp(fields):
  if not fields.whole('expert_count', 0, least=0):
    own = fields_lib.read(fields, (llama.WIDTH,))
    inner = own[llama.WIDTH.theirs]
    return {'num_local_experts': 0, COMMON.theirs: inner}
  return fields_lib.read(fields, (*EXPERTS, COMMON))


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  _, full = hf_granite.KINDS
  heads = theirs['num_key_value_heads']
  rotates = theirs[hf_granite.POSITIONS] == hf_granite.ROTATED
  if theirs['num_local_experts']:
    mlp = fields_lib.write(theirs, (*EXPERTS, COMMON))
  else:
    mlp = {llama.WIDTH.name: theirs[COMMON.theirs]}
  return {
    **fields_lib.write(theirs, (*FIELDS, *MIXER)),
    **mlp,
    **(rope.write(theirs) if rotates else {}),
    ROTATES: rotates,
    KEY_HEADS: [heads if kind == full else 0 for kind in theirs['layer_types']],
    SCALE: float(theirs[hf_granite.SCALE]),
    mamba2.INNER: theirs['mamba_n_heads'] * theirs['mamba_d_head'],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  routed = config.model.experts.count > 0
  ends = 'shexp' if routed else ''
  names = NAMES | {
    theirs: f'{name}_{ends}'.rstrip('_') for theirs, name in SHARED.items()
  }
  attends = config.model.cell == 'attention'
  shapes = {} if attends else mamba2.shapes(config.cell)
  rows = tensors_lib.named(hf_granite.layer(config), names, shapes)
  if attends:
    rows = llama.in_pairs(rows, config.cell.head_width)
  return rows + (tensors_lib.experts(config.model) if routed else [])


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
