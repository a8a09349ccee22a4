"""Mamba-2 of transformers: x = x + mamba2(rms_norm(x) * s), without an MLP.

Their fused projection has the parts g, v, k, q and dt of all heads in turn,
ours has those of a group of heads together; so do the channels of the
convolution. Their first tap is of the oldest input, ours of the newest.
Source: Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient
Algorithms Through Structured State Space Duality", 2024.
"""

import math
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba2
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields

MODEL_TYPES = {'mamba2': 'Mamba2ForCausalLM'}
CELLS = ('mamba2',)
NAMES = table.Names('backbone.embeddings', 'backbone.norm_f', 'backbone.layers')
MIXED = ('value', 'key', 'query')
NEEDED = {'hidden_act': 'silu', 'use_bias': False, 'use_conv_bias': True}
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width'),
  fields.Field('layer_norm_epsilon', 'model.norm_epsilon', 1e-5),
  fields.Field('layer_norm_epsilon', 'cell.norm_epsilon', 1e-5),
  fields.Field('num_heads', 'cell.heads'),
  fields.Field('head_dim', 'cell.value_width'),
  fields.Field('state_size', 'cell.key_width'),
  fields.Field('n_groups', 'cell.groups', 8),
  fields.Field('conv_kernel', 'cell.convolution', 4, most=keys_lib.TAPS),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  check_limits(keys)
  own = fields.options(keys, FIELDS)
  width, inner = own['model.width'], own['cell.heads'] * own['cell.value_width']
  expand = keys.number('expand', 2)
  if int(expand * width) != inner:
    keys.refuse('expand', expand, f'hidden_size={width} and heads need another')
  return {
    **own,
    **fields.head(keys, tied=False),
    'model.cell': 'mamba2',
    'model.norm_scale': True,
    'cell.norm_scale': True,
  }


def check_limits(keys: keys_lib.Keys) -> None:
  """Refuses limits of the step size dt, which ours doesn't have."""
  limits = keys.items('time_step_limit')
  # Infinity is written in either of two ways.
  known = [[0, math.inf], [0, {'__float__': 'Infinity'}]]
  if limits and limits not in known:
    keys.refuse('time_step_limit', limits, 'only [0, Infinity] is supported')


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  inner = config.cell.heads * config.cell.value_width
  own = fields.describe(config, FIELDS)
  return NEEDED | own | {'expand': inner // config.model.width}


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return mixed(config, mixer(config))


def mixed(
  config: config_lib.Config, rows: list[table.Tensor]
) -> list[table.Row]:
  """Returns the tensors of a layer of Mamba or Mamba-2, with its mixer's."""
  norm = table.scale('norm', 'cell_norm', config.model.width)
  return [norm, *table.within('mixer', 'cell', rows)]


def mixer(config: config_lib.Config) -> list[table.Tensor]:
  """Returns the tensors of a Mamba-2."""
  cell: mamba2.Config = config.cell
  G, widths, inner = cell.groups, cell.widths, cell.heads * cell.value_width
  mixed = {name: widths[name] for name in MIXED}
  columns, width = G * sum(widths.values()), config.model.width
  channels = G * sum(mixed.values())

  def project(x):
    return [table.head_view(widths, part, G)(x) for part in widths]

  def convolve(x):
    newest_last = x[::-1] if x.ndim > 1 else x
    return [table.head_view(mixed, part, G)(newest_last) for part in mixed]

  norm = [table.scale('norm', 'norm', inner)] if cell.norm_scale else []
  return [
    *table.dense('in_proj', 'projection', (columns, width), view=project),
    *table.dense('out_proj', 'output', (width, inner)),
    table.Tensor(
      'conv1d.weight', (channels, 1, cell.convolution), 'taps', convolve
    ),
    table.Tensor('conv1d.bias', (channels,), 'taps_bias', convolve),
    table.Tensor('dt_bias', (cell.heads,), 'dt_bias'),
    table.Tensor('A_log', (cell.heads,), 'log_rate'),
    table.Tensor('D', (cell.heads,), 'skip'),
    *norm,
  ]
