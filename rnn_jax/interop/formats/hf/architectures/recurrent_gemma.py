"""RecurrentGemma: RG-LRUs, and attention over a window, each with an MLP.

    x = x + block(rms_norm(x) * (1 + s))    x = x + mlp(rms_norm(x) * (1 + t))
    logits = c tanh(z / c),  z = E rms_norm(x) * (1 + u)

Embeddings are multiplied by sqrt(D), rounded to bfloat16 as theirs is. Scales
of norms are stored less one in both (model.norm_plus_one). Layers repeat
block_types, and their number needn't be a multiple of it: 26 layers of 3 types
are a pattern of 26 cells, of which we have one period. Their projections of u
and g are two, ours is fused, head by head, as are the gates r and i. Their
first tap is of the oldest input, ours of the newest.
Source: Botev et al., "RecurrentGemma: Moving Past Transformers for Efficient
Open Language Models", 2024.
"""

from collections.abc import Sequence
from typing import Any

import ml_dtypes

from rnn_jax import config as config_lib
from rnn_jax.cells import rg_lru
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import llama

MODEL_TYPES = {'recurrent_gemma': 'RecurrentGemmaForCausalLM'}
CELLS = ('rg_lru', 'attention')
NAMES = table.Names('model.embed_tokens', 'model.final_norm', 'model.layers')
BLOCKS = {'recurrent': 'rg_lru', 'attention': 'attention'}  # block_types
PUBLISHED = ('recurrent', 'recurrent', 'attention')
NEEDED = {'hidden_activation': 'gelu_pytorch_tanh'}
WINDOW = 2048  # without attention_window_size
HEADS = fields.Field('num_attention_heads', 'heads', 10)
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 26, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 2560),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', 1e-6),
  fields.Field('logits_soft_cap', 'model.logits_cap', 30.0),
)
RECURRENT = (
  HEADS,
  fields.Field('conv1d_width', 'convolution', 4, most=keys_lib.TAPS),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  own = fields.options(keys, FIELDS)
  width, cap = own['model.width'], own['model.logits_cap']
  if cap <= 0:
    keys.refuse('logits_soft_cap', cap, 'give a number above 0')
  inner = keys.whole('intermediate_size', 7680)
  if inner % 2:
    keys.refuse('intermediate_size', inner, 'half of it is the width: give 2 n')
  of_cell = {
    'rg_lru': _recurrent(keys, width),
    'attention': _attention(keys, width),
  }
  return {
    **own,
    **fields.head(keys, tied=True),
    **fields.patterned(_cells(keys, own['model.layers']), of_cell),
    'model.mlp_width': inner // 2,
    'model.mlp': 'geglu_tanh',
    'model.biases': True,
    'model.norm_scale': True,
    'model.norm_plus_one': True,
    'model.embedding_multiplier': float(ml_dtypes.bfloat16(width**0.5)),
  }


def _cells(keys, layers):
  """Returns the cell of each layer."""
  kinds = keys.names('block_types', [*BLOCKS]) or PUBLISHED
  return tuple(BLOCKS[kinds[n % len(kinds)]] for n in range(layers))


def _recurrent(keys, width):
  own = fields.options(keys, RECURRENT)
  heads, inner = own['heads'], keys.whole('lru_width', width)
  if inner % heads:
    keys.refuse('lru_width', inner, f'{heads} heads must divide it')
  return own | {'head_width': inner // heads, 'whole_start': True}


def _attention(keys, width):
  heads = HEADS.read(keys)
  head = width // heads
  fields.need(keys, {'head_dim': head})
  return {
    'heads': heads,
    'head_width': head,
    'kv_heads': keys.whole('num_key_value_heads', heads),
    'window': keys.whole('attention_window_size', WINDOW, least=2) - 1,
    'rotary': rotary.base(keys),
    'rotary_width': rotary.rotated(keys, head, 0.5),
    'biases': True,
    'projection_bias': keys.flag('attention_bias', False),
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  kinds, own = fields.describe_cells(
    config,
    BLOCKS,
    {'rg_lru': _described_recurrent, 'attention': _described_attention},
  )
  return {
    **NEEDED,
    **own,
    **fields.describe(config, FIELDS),
    'intermediate_size': 2 * config.model.mlp_width,
    'block_types': _period(kinds),
  }


def _described_recurrent(config):
  width = {'lru_width': config.cell.heads * config.cell.head_width}
  return fields.describe(config.cell, RECURRENT) | width


def _described_attention(config):
  cell, length = config.cell, config.data.length
  own = {
    'num_attention_heads': cell.heads,
    'num_key_value_heads': cell.groups,
    'head_dim': cell.head_width,
    'attention_bias': cell.biases and cell.projection_bias,
    'rope_parameters': rotary.described_share(cell),
  }
  # A window beyond the rows is kept as it was, or is theirs.
  if cell.window < length or length >= WINDOW:
    own['attention_window_size'] = cell.window + 1
  return own


def _period(kinds: Sequence[str]) -> Sequence[str]:
  """Returns the shortest pattern that is repeated, the last time maybe cut."""
  for n in range(1, len(kinds)):
    if all(kind == kinds[m % n] for m, kind in enumerate(kinds)):
      return kinds[:n]
  return kinds


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  width = config.model.width
  if config.model.cell == 'rg_lru':
    block = _recurrent_rows(config.cell, width)
  else:
    block = llama.attention(config)
  return [
    table.scale('temporal_pre_norm', 'cell_norm', width),
    table.scale('channel_pre_norm', 'mlp_norm', width),
    *table.within('temporal_block', 'cell', block),
    *table.within('mlp_block', 'mlp', llama.mlp(config.model)),
  ]


def _recurrent_rows(cell: rg_lru.Config, width):
  H, P = cell.heads, cell.head_width
  S = H * P
  projected = {'linear_x': 'linear_x', 'linear_y': 'linear_y'}
  halves = dict.fromkeys(projected, P)
  first, last = (lambda x: x[..., :P]), (lambda x: x[..., P:])
  rows = (
    ('conv_1d.weight', (S, 1, cell.convolution), 'taps', lambda x: x[::-1].T),
    ('rg_lru.recurrent_gate_weight', (H, P, P), 'gate.kernel', first),
    ('rg_lru.recurrent_gate_bias', (H, P), 'gate.bias', first),
    ('rg_lru.input_gate_weight', (H, P, P), 'gate.kernel', last),
    ('rg_lru.input_gate_bias', (H, P), 'gate.bias', last),
  )
  return [
    *table.projected(projected, halves, H, width, biased=True),
    *table.dense('linear_out', 'output', (width, S), biased=True),
    table.Tensor('conv_1d.bias', (S,), 'taps_bias'),
    table.Tensor('rg_lru.recurrent_param', (S,), 'decay'),
    *(table.Tensor(*row) for row in rows),
  ]
