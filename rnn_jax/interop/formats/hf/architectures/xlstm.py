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

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import mlstm
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import gated_deltanet

MODEL_TYPES = ('xlstm',)
CELLS = ('mlstm',)
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
MULTIPLE = 64  # of the MLP's width, if not given


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  for name, value in NEEDED.items():
    keys.one_of(name, (value,), value)
  width = _either(keys, 'hidden_size', 'embedding_dim')
  epsilon = keys.number('norm_eps', 1e-6)
  heads = keys.whole('num_heads', 8)
  return {
    'model.cell': 'mlstm',
    'model.layers': _either(
      keys, 'num_hidden_layers', 'num_blocks', keys_lib.LAYERS
    ),
    'model.width': width,
    'model.mlp_width': _inner(keys, width),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.norm_epsilon': epsilon,
    'model.head_bias': False,
    'model.logits_cap': _cap(keys, 'output_logit_soft_cap', 30.0),
    'cell.heads': heads,
    'cell.key_width': _of_head(keys, 'qk_dim_factor', 0.5, width, heads),
    'cell.value_width': _of_head(keys, 'v_dim_factor', 1.0, width, heads),
    'cell.gate_cap': _cap(keys, 'gate_soft_cap', 15.0),
    'cell.normalizer_epsilon': keys.number('eps', 1e-6),
    'cell.norm': 'layer',
    'cell.norm_scale': True,
    'cell.norm_epsilon': epsilon,
  }


def _either(keys, name, other, most=keys_lib.MAX_SIZE):
  """Returns a whole number that has two names, both of which may be given."""
  first = name if keys.get(name) is not None else other
  value = keys.whole(first, most=most)
  keys.one_of(other, (value,), value)
  return value


def _cap(keys, name, default):
  cap = keys.number(name, default)
  if cap <= 0:  # 0 is none in ours, and a division by 0 in theirs
    keys.refuse(name, cap, 'give a number above 0')
  return cap


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
  return NEEDED | {
    'architectures': ['xLSTMForCausalLM'],
    'num_hidden_layers': model.layers,
    'num_blocks': model.layers,
    'hidden_size': model.width,
    'embedding_dim': model.width,
    'num_heads': cell.heads,
    'qk_dim_factor': _factor(cell.heads * cell.key_width, model.width),
    'v_dim_factor': _factor(cell.heads * cell.value_width, model.width),
    'ffn_proj_factor': _factor(model.mlp_width, model.width),
    'ffn_round_up_to_multiple_of': math.gcd(model.mlp_width, MULTIPLE),
    'gate_soft_cap': cell.gate_cap,
    'output_logit_soft_cap': model.logits_cap,
    'eps': cell.normalizer_epsilon,
    'norm_eps': cell.norm_epsilon,
  }


def _factor(columns, width):
  """Returns a factor by which width rounds down to the columns."""
  factor = columns / width
  return factor if int(width * factor) == columns else (columns + 0.5) / width


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  model = config.model
  listed = table.ends(
    model, vocabulary, ('backbone.embeddings', 'backbone.out_norm')
  )
  width, inner = model.width, model.mlp_width
  mlp = (
    table.Dense('proj_up_gate', 'gate', (inner, width)),
    table.Dense('proj_up', 'up', (inner, width)),
    table.Dense('proj_down', 'down', (width, inner)),
  )
  for n, (ours, place, _) in enumerate(table.layers(model)):
    theirs = f'backbone.blocks.{n}'
    listed += [
      table.scale(f'{theirs}.norm_mlstm', f'{ours}.cell_norm', width, place),
      table.scale(f'{theirs}.norm_ffn', f'{ours}.mlp_norm', width, place),
      *_cell(config, f'{theirs}.mlstm_layer', f'{ours}.cell', place),
      *table.dense(mlp, f'{theirs}.ffn', f'{ours}.mlp', place),
    ]
  return listed


def _cell(config, theirs, ours, place):
  cell: mlstm.Config = config.cell
  width, inner = config.model.width, cell.heads * cell.value_width
  dense = [
    table.Dense(
      name,
      'projection',
      (cell.heads * cell.widths[part], width),
      view=gated_deltanet.head_view(cell.widths, part, cell.heads),
    )
    for part, name in PROJECTED.items()
  ]
  dense.append(table.Dense('out_proj', 'output', (width, inner)))
  rows: list[Any] = [
    (f'{PROJECTED[part]}.bias', (cell.heads,), 'gate_bias', _column(n))
    for n, part in enumerate(GATES)
  ]
  rows.append(('multihead_norm.weight', (inner,), 'norm.scale', np.asarray))
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]


def _column(n):
  return lambda x: x[:, n]
