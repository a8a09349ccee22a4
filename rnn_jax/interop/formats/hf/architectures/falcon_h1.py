"""Falcon-H1: Mamba-2 and attention side by side, followed by an MLP.

    x = x + m_1 mamba2(x') + m_2 attention(x')        x' = rms_norm(x) * s
    x = x + d W_down(silu(g W_gate x'') * W_up x'')   x'' = rms_norm(x) * t

All layers are alike. Every part has a multiplier in theirs: embeddings, logits,
what each cell reads and returns, keys, the five parts of Mamba-2's projection,
the MLP's gate and its output. Ours has those that differ in effect: what
attention reads is in the scale of its scores and in m_2, what Mamba-2 reads in
the multipliers of its parts, and as silu(g z) is g z sigmoid(g z), g is
model.swish_beta and a part of model.mlp_multiplier. So biases, which they don't
multiply, are refused. Mamba-2 may have no norm, or one before its gate.
Source: Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models
Redefining Efficiency and Performance", 2025.
"""

import dataclasses
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba2_attention
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import bamba
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mamba2

MODEL_TYPES = {'falcon_h1': 'FalconH1ForCausalLM'}
CELLS = ('mamba2_attention',)
NAMES = bamba.NAMES
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 32, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 4096),
  fields.Field('intermediate_size', 'model.mlp_width', 14336),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', bamba.EPSILON),
  fields.Field('embedding_multiplier', 'model.embedding_multiplier', 1.0),
)
HEAD = 'lm_head_multiplier'
NEEDED = {
  **bamba.NEEDED,
  'projectors_bias': False,
  'attention_bias': False,
  'mlp_bias': False,
}
NORMS = {  # by mamba_rms_norm and mamba_norm_before_gate
  (True, False): 'after',
  (True, True): 'before',
  (False, False): 'none',
  (False, True): 'none',
}
INNER = 'mamba_d_ssm'
PARTS = 5  # of Mamba-2's projection


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  fields.need(keys, NEEDED)
  mamba2.check_limits(keys)
  own = fields.options(keys, FIELDS)
  width, epsilon = own['model.width'], own['model.norm_epsilon']
  gate, down = _multipliers(keys, 'mlp_multipliers', 2)
  cells = {
    'mamba2': _mixer(keys, width, epsilon),
    'attention': _attention(keys, width),
  }
  read = keys.number('attention_in_multiplier', 1.0)
  written = keys.number('attention_out_multiplier', 1.0)
  return {
    **own,
    **fields.head(keys, tied=False),
    **{
      f'cell.{name}.{key}': value
      for name in cells
      for key, value in cells[name].items()
    },
    'cell.mamba2_multiplier': keys.number('ssm_out_multiplier', 1.0),
    'cell.attention_multiplier': read * written,
    'model.cell': 'mamba2_attention',
    'model.mlp': 'swiglu',
    'model.swish_beta': gate,
    'model.mlp_multiplier': gate * down,
    'model.norm_scale': True,
    'model.head_multiplier': keys.number(HEAD, 1.0, rotary.POSITIVE),
  }


def _multipliers(keys, name, count):
  """Returns a list of multipliers, all 1 if it is missing."""
  given = keys.items(name, count)
  given = [1.0] * count if given is None else given
  if len(given) != count:
    keys.refuse(name, given, f'give {count} numbers')
  each = [dataclasses.replace(keys, values={name: x}) for x in given]
  return [one.number(name) for one in each]


def _mixer(keys, width, epsilon):
  own = fields.options(keys, bamba.MAMBA)
  heads = own['heads']
  if keys.values.get(INNER, 1024) is None:
    inner = keys.whole('mamba_expand', 2) * width
  else:
    inner = keys.whole(INNER, 1024)
  P = bamba.value_width(keys, inner, heads)
  normed = keys.flag('mamba_rms_norm', False)
  norm = NORMS[normed, keys.flag('mamba_norm_before_gate', True)]
  read = keys.number('ssm_in_multiplier', 1.0)
  parts = tuple(read * x for x in _multipliers(keys, 'ssm_multipliers', PARTS))
  return own | {
    'value_width': P,
    'norm': norm,
    'norm_scale': normed,
    'norm_epsilon': epsilon,
    'multipliers': () if {*parts} == {1.0} else parts,
  }


def _attention(keys, width):
  heads = keys.whole('num_attention_heads', 32)
  K = keys.whole('head_dim', bamba.head_width(keys, width, heads))
  read = keys.number('attention_in_multiplier', 1.0)
  scale = read**2 * keys.number('key_multiplier', 1.0, rotary.POSITIVE)
  return {
    'heads': heads,
    'head_width': K,
    'kv_heads': keys.whole('num_key_value_heads', 8),
    'rotary': rotary.base(keys, (*rotary.SCALINGS,)),
    'rotary_scaling': rotary.scaling(keys),
    'score_scale': 0.0 if scale == 1 else scale * K**-0.5,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model, cell = config.model, config.cell
  gate = model.swish_beta
  down = fields.solved(
    lambda x: gate * x, model.mlp_multiplier, model.mlp_multiplier / (gate or 1)
  )
  return {
    **NEEDED,
    **fields.describe(config, FIELDS),
    **_described_mixer(cell.mamba2),
    **_described_attention(cell.attention),
    HEAD: model.head_multiplier,
    'mlp_multipliers': [gate, down],
    'ssm_out_multiplier': cell.mamba2_multiplier,
    'attention_in_multiplier': 1.0,
    'attention_out_multiplier': cell.attention_multiplier,
    'hidden_act': 'silu',
  }


def _described_mixer(cell):
  given = {norm: flags for flags, norm in NORMS.items()}
  normed, before = given[cell.norm]
  return {
    **fields.describe(cell, bamba.MAMBA),
    INNER: cell.heads * cell.value_width,
    'mamba_d_head': cell.value_width,
    'mamba_rms_norm': normed,
    'mamba_norm_before_gate': before,
    'ssm_in_multiplier': 1.0,
    'ssm_multipliers': [*cell.multipliers] or [1.0] * PARTS,
  }


def _described_attention(cell):
  root, scale = cell.head_width**-0.5, cell.score_scale
  return {
    'num_attention_heads': cell.heads,
    'num_key_value_heads': cell.groups,
    'head_dim': cell.head_width,
    'key_multiplier': fields.solved(lambda x: x * root, scale, scale / root)
    if scale
    else 1.0,
    'rope_parameters': rotary.described(cell.rotary, cell.rotary_scaling),
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  width, cell = config.model.width, config.cell
  own: mamba2_attention.Config = cell
  mixer = dataclasses.replace(config, cell=own.mamba2)
  attention = dataclasses.replace(config, cell=own.attention)
  return [
    table.scale('input_layernorm', 'cell_norm', width),
    table.scale('pre_ff_layernorm', 'mlp_norm', width),
    *table.within('mamba', 'cell.mamba2', mamba2.mixer(mixer)),
    *table.within('self_attn', 'cell.attention', llama.attention(attention)),
    *table.within('feed_forward', 'mlp', llama.mlp(config.model)),
  ]
