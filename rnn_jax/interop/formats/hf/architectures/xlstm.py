"""xLSTM of transformers in the layout of xLSTM-7B: mLSTM cells and MLPs.

    x = x + mlstm(rms_norm(x) * s)       x = x + mlp(rms_norm(x) * t)

Their projections and gates are one for each part, ours are fused, head by head.
Biases other than those of the gates, fused weights (`weight_mode`) and models
without the last norm are refused. Keys that choose kernels and their formats
don't define a model.
Source: Beck et al., "xLSTM 7B: A Recurrent LLM for Fast and Efficient
Inference", 2025.
"""

import math
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import mlstm
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields

MODEL_TYPES = {'xlstm': 'xLSTMForCausalLM'}
CELLS = ('mlstm',)
NAMES = table.Names(
  'backbone.embeddings', 'backbone.out_norm', 'backbone.blocks'
)
PROJECTED = {  # the parts of our projection
  'query': 'q',
  'key': 'k',
  'value': 'v',
  'output_gate': 'ogate_preact',
  'input': 'igate_preact',
  'forget': 'fgate_preact',
}
GATES = ('input', 'forget')  # which have biases, in the order of ours
NEEDED = {  # what ours computes
  'use_bias': False,
  'add_out_norm': True,
  'tie_word_embeddings': False,
  'weight_mode': 'single',
}
FIELDS = (
  fields.Field('norm_eps', 'model.norm_epsilon', 1e-6),
  fields.Field('norm_eps', 'cell.norm_epsilon', 1e-6),
  fields.Field('output_logit_soft_cap', 'model.logits_cap', 30.0),
  fields.Field('gate_soft_cap', 'cell.gate_cap', 15.0),
  fields.Field('eps', 'cell.normalizer_epsilon', 1e-6),
  fields.Field('num_heads', 'cell.heads', 8),
)
CAPS = {
  'output_logit_soft_cap': 'model.logits_cap',
  'gate_soft_cap': 'cell.gate_cap',
}
MULTIPLE = 64  # of the MLP's width, if not given


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  own = fields.options(keys, FIELDS)
  for name, ours in CAPS.items():
    if own[ours] <= 0:  # 0 is none in ours, and a division by 0 in theirs
      keys.refuse(name, own[ours], 'give a number above 0')
  width, heads = (
    _either(keys, 'hidden_size', 'embedding_dim'),
    own['cell.heads'],
  )
  return {
    **own,
    'model.cell': 'mlstm',
    'model.layers': _either(
      keys, 'num_hidden_layers', 'num_blocks', keys_lib.LAYERS
    ),
    'model.width': width,
    'model.mlp_width': _inner(keys, width),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.head_bias': False,
    'cell.key_width': _of_head(keys, 'qk_dim_factor', 0.5, width, heads),
    'cell.value_width': _of_head(keys, 'v_dim_factor', 1.0, width, heads),
    'cell.norm': 'layer',
    'cell.norm_scale': True,
  }


def _either(keys, name, other, most=keys_lib.MAX_SIZE):
  """Returns a whole number that has two names, both of which may be given."""
  first = name if keys.get(name) is not None else other
  value = keys.whole(first, most=most)
  fields.need(keys, {other: value})
  return value


def _inner(keys, width):
  """Returns the MLP's width: a multiple of the model's, rounded up."""
  unit = keys.whole('ffn_round_up_to_multiple_of', MULTIPLE)
  factor = keys.number('ffn_proj_factor', 2.667)
  inner = int((width * factor + unit - 1) // unit * unit)
  if inner < 1:
    keys.refuse('ffn_proj_factor', factor, 'give more than 0')
  return inner


def _of_head(keys, name, default, width, heads):
  """Returns the columns of a head."""
  factor = keys.number(name, default)
  columns = int(width * factor)
  if columns < 1 or columns % heads:
    keys.refuse(name, factor, f'num_heads={heads} must divide {columns}')
  return columns // heads


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model, cell = config.model, config.cell
  return {
    **NEEDED,
    **fields.describe(config, FIELDS),
    **dict.fromkeys(('num_hidden_layers', 'num_blocks'), model.layers),
    **dict.fromkeys(('hidden_size', 'embedding_dim'), model.width),
    'qk_dim_factor': _factor(cell.heads * cell.key_width, model.width),
    'v_dim_factor': _factor(cell.heads * cell.value_width, model.width),
    'ffn_proj_factor': _factor(model.mlp_width, model.width),
    'ffn_round_up_to_multiple_of': math.gcd(model.mlp_width, MULTIPLE),
  }


def _factor(columns, width):
  """Returns a factor by which width rounds down to the columns."""
  factor = columns / width
  return factor if int(width * factor) == columns else (columns + 0.5) / width


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  width, inner = config.model.width, config.model.mlp_width
  mlp = (
    *table.dense('proj_up_gate', 'gate', (inner, width)),
    *table.dense('proj_up', 'up', (inner, width)),
    *table.dense('proj_down', 'down', (width, inner)),
  )
  return [
    table.scale('norm_mlstm', 'cell_norm', width),
    table.scale('norm_ffn', 'mlp_norm', width),
    *table.within('mlstm_layer', 'cell', _cell(config.cell, width)),
    *table.within('ffn', 'mlp', mlp),
  ]


def _cell(cell: mlstm.Config, width):
  H, inner = cell.heads, cell.heads * cell.value_width
  biases = [
    table.Tensor(
      f'{PROJECTED[part]}.bias', (H,), 'gate_bias', lambda x, n=n: x[:, n]
    )
    for n, part in enumerate(GATES)
  ]
  return [
    *table.projected(PROJECTED, cell.widths, H, width),
    *biases,
    *table.dense('out_proj', 'output', (width, inner)),
    table.scale('multihead_norm', 'norm', inner),
  ]
