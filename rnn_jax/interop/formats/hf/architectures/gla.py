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

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import gla
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import gated_deltanet

MODEL_TYPES = ('gla',)
CELLS = ('gla',)
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


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  for name, value in NEEDED.items():
    keys.one_of(name, (value,), value)
  for name in ABSENT:
    keys.absent(name)
  keys.one_of('gate_low_rank_dim', (RANK,), RANK)
  keys.one_of('gate_logit_normalizer', (ROOT,), ROOT)
  width, heads = keys.whole('hidden_size', 2048), keys.whole('num_heads', 4)
  keys.one_of('num_kv_heads', (heads,), heads)
  expand = keys.number('expand_k', 0.5)
  widths = expand, keys.number('expand_v', 1.0)
  key, value = (width * x / heads for x in widths)
  epsilon = keys.number('norm_eps', 1e-6)
  tied = keys.flag('tie_word_embeddings', False)
  inner = gated_deltanet.inner_width(keys, width)
  return {
    'model.cell': 'gla',
    'model.layers': keys.whole('num_hidden_layers', 24, most=keys_lib.LAYERS),
    'model.width': width,
    'model.mlp_width': keys.whole('intermediate_size', inner),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.norm_epsilon': epsilon,
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
    **gated_deltanet.head_widths(
      keys, heads, (key, value), ('expand_k', expand)
    ),
    'cell.rank': RANK,
    'cell.shared_gate': True,
    'cell.temperature': ROOT,
    'cell.norm_scale': True,
    'cell.norm_epsilon': epsilon,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model, cell = config.model, config.cell
  return (
    NEEDED
    | dict.fromkeys(ABSENT)
    | {
      'architectures': ['GLAForCausalLM'],
      'num_hidden_layers': model.layers,
      'hidden_size': model.width,
      'intermediate_size': model.mlp_width,
      'norm_eps': cell.norm_epsilon,
      'num_heads': cell.heads,
      'num_kv_heads': None,
      'expand_k': cell.heads * cell.key_width / model.width,
      'expand_v': cell.heads * cell.value_width / model.width,
    }
  )


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  return gated_deltanet.with_mlps(config, vocabulary, _cell)


def _cell(config, theirs, ours, place):
  cell: gla.Config = config.cell
  width, heads = config.model.width, cell.heads
  widths = {name: cell.widths[name] for name in PROJECTED}
  dense = [
    table.Dense(
      name,
      'projection',
      (heads * widths[part], width),
      view=gated_deltanet.head_view(widths, part, heads),
    )
    for part, name in PROJECTED.items()
  ]
  dense.append(table.Dense('gk_proj.0', 'gate_down', (cell.rank, width)))
  dense.append(
    table.Dense('o_proj', 'output', (width, heads * cell.value_width))
  )
  keys = heads * cell.key_width

  def mix(x):  # of HxRxK
    return x.swapaxes(1, 2)

  rows = (
    ('gk_proj.1.weight', (keys, cell.rank), 'gate_up', mix),
    ('gk_proj.1.bias', (keys,), 'gate_bias', np.asarray),
    (
      'g_norm_swish_gate.weight',
      (cell.value_width,),
      'norm.scale',
      np.asarray,
    ),
  )
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]
