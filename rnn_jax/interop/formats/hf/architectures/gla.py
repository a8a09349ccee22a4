"""Gated Linear Attention of flash-linear-attention, with an MLP.

    x = x + gla(rms_norm(x) * s)       x = x + mlp(rms_norm(x) * t)

Their projections are one for each part, ours are fused, head by head; the map
to the gates' low rank is one for all heads in both. Its rank and the root of
the gates are 16 in all their models, whatever config.json says. Variants with
attention layers, a convolution, feature maps, grouped keys or without the
output gate are refused.
Source: Yang et al., "Gated Linear Attention Transformers with Hardware-
Efficient Training", 2023.
"""

from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import gla
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf.architectures import gated_deltanet

MODEL_TYPES = {'gla': 'GLAForCausalLM'}
CELLS = ('gla',)
NAMES = gated_deltanet.NAMES
PROJECTED = {  # the parts of our projection
  'query': 'q_proj',
  'key': 'k_proj',
  'value': 'v_proj',
  'output_gate': 'g_proj',
}
RANK, ROOT = 16, 16.0  # of the gates
NEEDED = {  # what the cell computes
  'hidden_act': 'swish',
  'use_gk': True,
  'use_gv': False,
  'use_short_conv': False,
  'use_output_gate': True,
  'elementwise_affine': True,
  'fuse_norm': True,
}
ABSENT = ('attn', 'attnres_block_size', 'feature_map', 'clamp_min')
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 24, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 2048),
  fields.Field('norm_eps', 'model.norm_epsilon', 1e-6),
  fields.Field('norm_eps', 'cell.norm_epsilon', 1e-6),
  fields.Field('num_heads', 'cell.heads', 4),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  for name in ABSENT:
    keys.absent(name)
  fields.need(keys, {'gate_low_rank_dim': RANK, 'gate_logit_normalizer': ROOT})
  own = fields.options(keys, FIELDS)
  width, heads = own['model.width'], own['cell.heads']
  fields.need(keys, {'num_kv_heads': heads})
  expand = keys.number('expand_k', 0.5)
  widths = expand, keys.number('expand_v', 1.0)
  key, value = (width * x / heads for x in widths)
  return {
    **own,
    **fields.head(keys, tied=False),
    **gated_deltanet.head_widths(keys, (key, value), ('expand_k', expand)),
    'model.cell': 'gla',
    'model.mlp_width': gated_deltanet.inner_width(keys, width),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'cell.rank': RANK,
    'cell.shared_gate': True,
    'cell.temperature': ROOT,
    'cell.norm_scale': True,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  return {
    **NEEDED,
    **dict.fromkeys((*ABSENT, 'num_kv_heads')),
    **fields.describe(config, FIELDS),
    **gated_deltanet.expanded(config),
    'intermediate_size': config.model.mlp_width,
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return gated_deltanet.with_mlp(config, _cell(config))


def _cell(config):
  cell: gla.Config = config.cell
  width, heads = config.model.width, cell.heads
  keys, P = heads * cell.key_width, cell.value_width
  widths = {name: cell.widths[name] for name in PROJECTED}
  return [
    *table.projected(PROJECTED, widths, heads, width),
    *table.dense('gk_proj.0', 'gate_down', (cell.rank, width)),
    *table.dense('o_proj', 'output', (width, heads * P)),
    table.Tensor(
      'gk_proj.1.weight', (keys, cell.rank), 'gate_up', table.low_rank
    ),
    table.Tensor('gk_proj.1.bias', (keys,), 'gate_bias'),
    table.scale('g_norm_swish_gate', 'norm', P),
  ]
