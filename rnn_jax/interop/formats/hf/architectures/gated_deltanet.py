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
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import llama

CELL_OF = {'gated_deltanet': 'gated_deltanet', 'delta_net': 'deltanet'}
MODEL_TYPES = (*CELL_OF,)
CELLS = (*CELL_OF.values(),)
PROJECTED = {  # the parts of our projection
  'query': 'q_proj',
  'key': 'k_proj',
  'value': 'v_proj',
  'beta': 'b_proj',
  'decay': 'a_proj',
  'output_gate': 'g_proj',
}
NEEDED = {  # what the cells compute
  'gated_deltanet': {'use_gate': True},
  'delta_net': {
    'use_gate': False,
    'use_beta': True,
    'use_output_norm': True,
    'qk_norm': 'l2',
    'qk_activation': 'silu',
  },
}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  model_type, width = keys.values['model_type'], keys.whole('hidden_size')
  for name, value in (NEEDED[model_type] | {'use_short_conv': True}).items():
    keys.one_of(name, (value,), value)
  keys.absent('attn')
  tied = keys.flag('tie_word_embeddings', False)
  epsilon = keys.number('norm_eps', 1e-6)
  activation = keys.one_of('hidden_act', table.ACTIVATIONS, 'swish')
  negative = keys.flag('allow_neg_eigval', False)
  return {
    'model.cell': CELL_OF[model_type],
    'model.layers': keys.whole('num_hidden_layers', most=keys_lib.LAYERS),
    'model.width': width,
    'model.mlp_width': keys.whole(
      'intermediate_size', inner_width(keys, width)
    ),
    'model.mlp': table.ACTIVATIONS[activation],
    'model.norm_scale': True,
    'model.norm_epsilon': epsilon,
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
    **_heads(keys, width),
    'cell.convolution': keys.whole('conv_size', 4, most=keys_lib.TAPS),
    'cell.max_beta': 2.0 if negative else 1.0,
    'cell.norm_scale': True,
    'cell.norm_epsilon': epsilon,
  }


def inner_width(keys: keys_lib.Keys, width: int) -> int:
  """Returns the MLP's width: 2/3 of a ratio, rounded up to 256s."""
  inner = int(width * keys.whole('hidden_ratio', 4) * 2 / 3)
  return -(-inner // 256) * 256


def _heads(keys, width):
  """Returns the options of heads."""
  if keys.values['model_type'] == 'gated_deltanet':
    heads, key = keys.whole('num_heads', 6), keys.whole('head_dim', 256)
    keys.one_of('num_v_heads', (heads,), heads)
    name, expand = 'expand_v', keys.number('expand_v', 2.0)
    value = key * expand
  else:
    heads = keys.whole('num_heads', 16)
    name, expand = 'expand_k', keys.number('expand_k', 1.0)
    key = width * expand / heads
    value = width * keys.number('expand_v', 1.0) / heads
  return head_widths(keys, heads, (key, value), (name, expand))


def head_widths(
  keys: keys_lib.Keys,
  heads: int,
  widths: tuple[float, float],
  expand: tuple[str, float],
) -> dict[str, Any]:
  """Returns the options of heads, and refuses widths that aren't whole.

  Args:
    keys: of config.json.
    heads: their number.
    widths: of a head's keys and values.
    expand: (key of theirs, its value) that is wrong if the widths are.
  """
  if not all(math.isclose(x, round(x)) and round(x) for x in widths):
    keys.refuse(*expand, f'heads would be {widths[0]} and {widths[1]} wide')
  return {
    'cell.heads': heads,
    'cell.key_width': round(widths[0]),
    'cell.value_width': round(widths[1]),
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  model, cell = config.model, config.cell
  own = {
    'head_dim': cell.key_width,
    'expand_v': cell.value_width / cell.key_width,
    'num_v_heads': None,
  }
  name = 'GatedDeltaNet'
  if model_type == 'delta_net':
    name = 'DeltaNet'
    own = {
      'expand_k': cell.heads * cell.key_width / model.width,
      'expand_v': cell.heads * cell.value_width / model.width,
    }
  return (
    NEEDED[model_type]
    | own
    | {
      'architectures': [f'{name}ForCausalLM'],
      'num_hidden_layers': model.layers,
      'hidden_size': model.width,
      'intermediate_size': model.mlp_width,
      'hidden_act': 'swish',
      'norm_eps': cell.norm_epsilon,
      'num_heads': cell.heads,
      'use_short_conv': True,
      'conv_size': cell.convolution,
      'allow_neg_eigval': cell.max_beta == 2,
      'attn': None,
    }
  )


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  return with_mlps(config, vocabulary, _cell)


def with_mlps(
  config: config_lib.Config,
  vocabulary: int,
  cell: Callable[..., list[table.Tensor]],
) -> list[table.Tensor]:
  """Returns the table of a model of flash-linear-attention with MLPs.

  `cell` returns the tensors of a cell from (config, prefix of theirs, prefix of
  ours, place).
  """
  listed = table.ends(
    config.model, vocabulary, ('model.embeddings', 'model.norm')
  )
  width = config.model.width
  for n, (ours, place, _) in enumerate(table.layers(config.model)):
    theirs = f'model.layers.{n}'
    listed += [
      table.scale(f'{theirs}.attn_norm', f'{ours}.cell_norm', width, place),
      table.scale(f'{theirs}.mlp_norm', f'{ours}.mlp_norm', width, place),
      *cell(config, f'{theirs}.attn', f'{ours}.cell', place),
      *table.dense(
        llama.mlp(config.model), f'{theirs}.mlp', f'{ours}.mlp', place
      ),
    ]
  return listed


def _cell(config, theirs, ours, place):
  cell, width = config.cell, config.model.width
  heads, inner = cell.heads, cell.heads * cell.value_width
  mixed = {name: cell.widths[name] for name in delta.Cell.mixed}
  dense = [
    table.Dense(
      PROJECTED[part],
      'projection',
      (heads * columns, width),
      view=head_view(cell.widths, part, heads),
    )
    for part, columns in cell.widths.items()
  ]
  dense.append(table.Dense('o_proj', 'output', (width, inner)))
  rows = [
    (
      f'{PROJECTED[part][0]}_conv1d.weight',
      (heads * columns, 1, cell.convolution),
      'taps',
      head_view(mixed, part, heads, step=-1),
    )
    for part, columns in mixed.items()
  ]
  rows.append(('o_norm.weight', (cell.value_width,), 'norm.scale', np.asarray))
  if 'decay' in cell.widths:
    rows.append(('A_log', (heads,), 'log_rate', np.asarray))
    rows.append(('dt_bias', (heads,), 'step_bias', np.asarray))
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]


def head_view(
  widths: Mapping[str, int], part: str, heads: int, step: int = 1
) -> Callable[[np.ndarray], np.ndarray]:
  """Returns the view of a part, of columns that are head by head.

  `widths` are those of all parts of a head, in order.
  """
  names = [*widths]
  begin = sum(widths[name] for name in names[: names.index(part)])
  end = begin + widths[part]
  return lambda x: x[::step].T.reshape(heads, -1, len(x))[:, begin:end]
