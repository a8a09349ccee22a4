"""Gated DeltaNet and DeltaNet of flash-linear-attention, with an MLP.

    x = x + cell(rms_norm(x) * s)       x = x + mlp(rms_norm(x) * t)

Their projections and convolutions are one for each part, ours are fused, head
by head. Their first tap is of the oldest input, ours of the newest. Variants
with attention layers, more heads of values than of keys, another norm of keys
or without a convolution are refused.
Source: Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule",
2024, and "Parallelizing Linear Transformers with the Delta Rule over Sequence
Length", 2024.
"""

import math
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf.architectures import llama

MODEL_TYPES = {
  'gated_deltanet': 'GatedDeltaNetForCausalLM',
  'delta_net': 'DeltaNetForCausalLM',
}
CELL_OF = {'gated_deltanet': 'gated_deltanet', 'delta_net': 'deltanet'}
CELLS = (*CELL_OF.values(),)
NAMES = table.Names('model.embeddings', 'model.norm', 'model.layers')
PROJECTED = {  # the parts of our projection
  'query': 'q_proj',
  'key': 'k_proj',
  'value': 'v_proj',
  'beta': 'b_proj',
  'decay': 'a_proj',
  'output_gate': 'g_proj',
}
NEEDED = {  # what the cells compute
  'gated_deltanet': {'use_short_conv': True, 'use_gate': True},
  'delta_net': {
    'use_short_conv': True,
    'use_gate': False,
    'use_beta': True,
    'use_output_norm': True,
    'qk_norm': 'l2',
    'qk_activation': 'silu',
  },
}
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width'),
  fields.Field('norm_eps', 'model.norm_epsilon', 1e-6),
  fields.Field('norm_eps', 'cell.norm_epsilon', 1e-6),
  fields.Field('conv_size', 'cell.convolution', 4, most=keys_lib.TAPS),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  model_type = keys.values['model_type']
  fields.need(keys, NEEDED[model_type])
  keys.absent('attn')
  own = fields.options(keys, FIELDS)
  activation = keys.one_of('hidden_act', fields.ACTIVATIONS, 'swish')
  negative = keys.flag('allow_neg_eigval', False)
  return {
    **own,
    **fields.head(keys, tied=False),
    **_heads(keys, own['model.width']),
    'model.cell': CELL_OF[model_type],
    'model.mlp_width': inner_width(keys, own['model.width']),
    'model.mlp': fields.ACTIVATIONS[activation],
    'model.norm_scale': True,
    'cell.max_beta': 2.0 if negative else 1.0,
    'cell.norm_scale': True,
  }


def inner_width(keys: keys_lib.Keys, width: int) -> int:
  """Returns the MLP's width, else 2/3 of a ratio, rounded up to 256s."""
  inner = int(width * keys.whole('hidden_ratio', 4) * 2 / 3)
  return keys.whole('intermediate_size', -(-inner // 256) * 256)


def _heads(keys, width):
  """Returns the options of heads."""
  if keys.values['model_type'] == 'gated_deltanet':
    heads, key = keys.whole('num_heads', 6), keys.whole('head_dim', 256)
    fields.need(keys, {'num_v_heads': heads})
    name, expand = 'expand_v', keys.number('expand_v', 2.0)
    value = key * expand
  else:
    heads = keys.whole('num_heads', 16)
    name, expand = 'expand_k', keys.number('expand_k', 1.0)
    key = width * expand / heads
    value = width * keys.number('expand_v', 1.0) / heads
  widths = head_widths(keys, (key, value), (name, expand))
  return {'cell.heads': heads, **widths}


def head_widths(
  keys: keys_lib.Keys, widths: tuple[float, float], expand: tuple[str, float]
) -> dict[str, Any]:
  """Returns the widths of heads, and refuses those that aren't whole.

  Args:
    keys: of config.json.
    widths: of a head's keys and values.
    expand: (key of theirs, its value) that is wrong if the widths are.
  """
  if not all(math.isclose(x, round(x)) and round(x) for x in widths):
    keys.refuse(*expand, f'heads would be {widths[0]} and {widths[1]} wide')
  key, value = map(round, widths)
  return {'cell.key_width': key, 'cell.value_width': value}


def expanded(config: config_lib.Config) -> dict[str, float]:
  """Returns the widths of all heads' keys and values, by the model's."""
  cell, width = config.cell, config.model.width
  return {
    'expand_k': cell.heads * cell.key_width / width,
    'expand_v': cell.heads * cell.value_width / width,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  cell = config.cell
  own = expanded(config)
  if model_type == 'gated_deltanet':
    own = {'expand_v': cell.value_width / cell.key_width}
    own |= {'head_dim': cell.key_width, 'num_v_heads': None}
  return {
    **NEEDED[model_type],
    **fields.describe(config, FIELDS),
    **own,
    'intermediate_size': config.model.mlp_width,
    'hidden_act': 'swish',
    'num_heads': cell.heads,
    'allow_neg_eigval': cell.max_beta == 2,
    'attn': None,
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return with_mlp(config, _cell(config))


def with_mlp(
  config: config_lib.Config, cell: list[table.Tensor]
) -> list[table.Row]:
  """Returns the tensors of a layer of flash-linear-attention's models."""
  return [
    table.scale('attn_norm', 'cell_norm', config.model.width),
    table.scale('mlp_norm', 'mlp_norm', config.model.width),
    *table.within('attn', 'cell', cell),
    *table.within('mlp', 'mlp', llama.mlp(config.model)),
  ]


def _cell(config):
  cell, width = config.cell, config.model.width
  heads, inner = cell.heads, cell.heads * cell.value_width
  names = {part: PROJECTED[part] for part in cell.widths}
  mixed = {part: cell.widths[part] for part in delta.Cell.mixed}
  taps = {part: f'{part[0]}_conv1d' for part in mixed}
  rows = [
    *table.projected(names, cell.widths, heads, width),
    *table.dense('o_proj', 'output', (width, inner)),
    *table.convolved(taps, mixed, heads, cell.convolution),
    table.scale('o_norm', 'norm', cell.value_width),
  ]
  if 'decay' in cell.widths:
    rows.append(table.Tensor('A_log', (heads,), 'log_rate'))
    rows.append(table.Tensor('dt_bias', (heads,), 'step_bias'))
  return rows
