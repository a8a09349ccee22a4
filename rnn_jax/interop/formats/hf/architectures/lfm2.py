"""LFM2: short convolutions and attention, followed by an MLP or by experts.

    x = x + cell(rms_norm(x) * s)        x = x + mlp(rms_norm(x) * t)

layer_types says which cell a layer has, or full_attn_idxs. Queries and keys of
attention are normed. In `lfm2_moe` layers have experts, chosen by sigmoids and
a bias, but the first num_dense_layers, which have an MLP. The last norm is
named after the embedding. Their projection has all b, all c and all x in turn,
ours those of a channel side by side; their first tap is of the oldest input,
ours of the newest. To the sum of a token's sigmoids they add 1e-6. Folders of
transformers with `save_original_format=False` join the experts' tensors, and
are read too.
Source: Liquid AI, "LFM2 Technical Report", 2025.
"""

import dataclasses
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import attention as attention_cell
from rnn_jax.cells import short_convolution
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import bamba
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = {
  'lfm2': 'Lfm2ForCausalLM',
  'lfm2_moe': 'Lfm2MoeForCausalLM',
}
CELLS = ('short_convolution', 'attention')
NAMES = table.Names(
  'model.embed_tokens', 'model.embedding_norm', 'model.layers'
)
KINDS = {'conv': 'short_convolution', 'full_attention': 'attention'}
ATTENDING = 'full_attn_idxs'
LAYERS = 'layer_types'
OLDER = {  # names of keys that have two
  'tie_embedding': 'tie_word_embeddings',
  'block_ff_dim': 'intermediate_size',
}
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 32, most=keys_lib.LAYERS),
  fields.Field('norm_eps', 'model.norm_epsilon', 1e-5),
)
WIDTHS = {'lfm2': 2560, 'lfm2_moe': 2048}  # if not given
CONVOLUTION = (
  fields.Field('conv_L_cache', 'convolution', 3, most=keys_lib.TAPS),
  fields.Field('conv_bias', 'biases', False),
)
HEADS = fields.Field('num_attention_heads', 'heads', 32)
THETA = 1e6  # the base of rotary positions, if not given
RENAMED = {  # of attention's tensors
  'o_proj': 'out_proj',
  'q_norm': 'q_layernorm',
  'k_norm': 'k_layernorm',
}
ADJUSTED = 'block_auto_adjust_ff_dim'
MLP = 'feed_forward'


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  older = {OLDER[k]: x for k, x in keys.values.items() if k in OLDER}
  keys = dataclasses.replace(keys, values=keys.values | older)
  own = fields.options(keys, FIELDS)
  width = keys.whole('hidden_size', WIDTHS[keys.values['model_type']])
  cells = _cells(keys, own['model.layers'])
  of_cell: dict[str, dict[str, Any]] = {}
  if 'short_convolution' in cells:
    of_cell['short_convolution'] = fields.options(keys, CONVOLUTION) | {
      'inner_width': width
    }
  if 'attention' in cells:
    of_cell['attention'] = _attention(keys, width, own['model.norm_epsilon'])
  pattern = fields.patterned(cells, of_cell)
  return {
    **own,
    **fields.head(keys, tied=True),
    **pattern,
    **_mlp(keys, own['model.layers'], len(pattern.get('model.cells', ('',)))),
    'model.width': width,
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
  }


def _cells(keys, layers):
  """Returns the cell of each layer."""
  indices = keys.items(ATTENDING, layers)
  if indices is None:
    indices = range(layers)
  short, full = KINDS

  def default():
    return [full if n in indices else short for n in range(layers)]

  kinds = fields.by_layer(keys, LAYERS, KINDS, layers, default)
  return [KINDS[kind] for kind in kinds]


def _attention(keys, width, epsilon):
  heads = HEADS.read(keys)
  return {
    'heads': heads,
    'head_width': keys.whole('head_dim', bamba.head_width(keys, width, heads)),
    'kv_heads': keys.whole('num_key_value_heads', 8),
    'rotary': rotary.base(keys, (*rotary.SCALINGS,), THETA),
    'rotary_scaling': rotary.scaling(keys),
    'qk_norm': True,
    'norm_epsilon': epsilon,
  }


def _mlp(keys, layers, period):
  """Returns the options of experts and of MLPs."""
  if keys.values['model_type'] == 'lfm2':
    return {'model.mlp_width': _inner(keys)}
  inner = keys.whole('intermediate_size', 7168)
  name = 'num_dense_layers'
  dense = keys.whole(name, 2, least=0)
  if dense >= layers:
    return {'model.mlp_width': inner}
  if dense > period:
    keys.refuse(
      name, dense, f'at most {period}, after which layer_types repeat'
    )
  names = 'num_experts_per_tok', 'norm_topk_prob'
  own = mixtral.routed_options(keys, names, (4, True)) | {
    'model.mlp_width': keys.whole('moe_intermediate_size', 1792),
    'model.experts.count': keys.whole('num_experts', 32, 2, keys_lib.EXPERTS),
    'model.experts.scores': 'sigmoid',
    'model.experts.correction': keys.flag('use_expert_bias', True),
    'model.experts.gate_scale': keys.number('routed_scaling_factor', 1.0),
  }
  if dense:
    own['model.experts.dense_layers'] = dense
    own['model.experts.dense_width'] = inner
  return own


def _inner(keys):
  """Returns the MLP's width: 2/3 of theirs, rounded up, unless they say."""
  inner = keys.whole('intermediate_size', 12288)
  if not keys.flag(ADJUSTED, True):
    return inner
  inner = int(2 * inner / 3)
  inner = int(keys.number('block_ffn_dim_multiplier', 1.0) * inner)
  unit = keys.whole('block_multiple_of', 256)
  return -(-inner // unit) * unit or keys.refuse(
    'block_ffn_dim_multiplier', 0.0, 'give more'
  )


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  kinds, own = fields.describe_cells(
    config,
    KINDS,
    {
      'short_convolution': lambda x: fields.describe(x.cell, CONVOLUTION),
      'attention': _described_attention,
    },
  )
  return {
    **own,
    **fields.describe(config, FIELDS),
    **_described_mlp(config.model, model_type),
    'hidden_size': config.model.width,
    LAYERS: kinds,
  }


def _described_attention(config):
  cell: attention_cell.Config = config.cell
  own = {
    'num_attention_heads': cell.heads,
    'num_key_value_heads': cell.groups,
    'rope_parameters': rotary.described(cell.rotary, cell.rotary_scaling),
  }
  if cell.heads * cell.head_width != config.model.width:
    own['head_dim'] = cell.head_width
  return own


def _described_mlp(model, model_type):
  experts = model.experts
  if model_type == 'lfm2':
    return {'intermediate_size': model.mlp_width, ADJUSTED: False}
  if not experts.count:
    return {
      'intermediate_size': model.mlp_width,
      'num_dense_layers': model.layers,
    }
  own = {
    'moe_intermediate_size': model.mlp_width,
    'num_dense_layers': experts.dense_layers,
    'num_experts': experts.count,
    'num_experts_per_tok': experts.per_token,
    'norm_topk_prob': experts.normalized and experts.per_token > 1,
    'use_expert_bias': experts.correction,
    'routed_scaling_factor': experts.gate_scale,
  }
  dense = {'intermediate_size': experts.dense_width}
  return own | (dense if experts.dense_layers else {})


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  width = config.model.width
  if config.model.cell == 'attention':
    rows = table.within('self_attn', 'cell', _attention_rows(config))
  else:
    rows = table.within('conv', 'cell', _convolution_rows(config.cell, width))
  return [
    table.scale('operator_norm', 'cell_norm', width),
    table.scale('ffn_norm', 'mlp_norm', width),
    *rows,
    *_mlp_rows(config.model),
  ]


def _attention_rows(config):
  return [
    dataclasses.replace(x, name=f'{RENAMED.get(part, part)}.{kind}')
    for x in llama.attention(config)
    for part, kind in [x.name.split('.')]
  ]


def _convolution_rows(cell: short_convolution.Config, width):
  S, biased = cell.inner_width, cell.biases

  def parts(x):
    return [x.T[n::3] for n in range(3)]

  rows = [
    *table.dense('in_proj', 'projection', (3 * S, width), biased, parts),
    *table.dense('out_proj', 'output', (width, S), biased),
    table.Tensor(
      'conv.weight', (S, 1, cell.convolution), 'taps', lambda x: x[::-1].T
    ),
  ]
  if biased:
    rows.append(table.Tensor('conv.bias', (S,), 'taps_bias'))
  return rows


def _mlp_rows(model):
  names = mixtral.MIXTRAL
  if not model.experts.count:
    D, F = model.width, model.mlp_width
    shapes = {'gate': (F, D), 'up': (F, D), 'down': (D, F)}
    return [
      row
      for leaf, name in names.items()
      for row in table.dense(f'{MLP}.{name}', f'mlp.{leaf}', shapes[leaf])
    ]
  rows = mixtral.routed(model, MLP, names, newer=MLP)
  if model.experts.correction:
    shape = (model.experts.count,)
    bias = table.Tensor('expert_bias', shape, 'router_bias')
    rows += table.within(MLP, 'experts', [bias])
  return rows
