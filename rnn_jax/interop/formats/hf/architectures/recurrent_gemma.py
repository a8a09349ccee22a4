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
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import rg_lru
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import llama

MODEL_TYPES = ('recurrent_gemma',)
CELLS = ('rg_lru', 'attention')
BLOCKS = {'recurrent': 'rg_lru', 'attention': 'attention'}  # block_types
PUBLISHED = ('recurrent', 'recurrent', 'attention')
ACTIVATION = 'gelu_pytorch_tanh'
WINDOW = 2048  # without attention_window_size


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_activation', (ACTIVATION,), ACTIVATION)
  width = keys.whole('hidden_size', 2560)
  tied = keys.flag('tie_word_embeddings', True)
  cap = keys.number('logits_soft_cap', 30.0)
  if cap <= 0:
    keys.refuse('logits_soft_cap', cap, 'give a number above 0')
  inner = keys.whole('intermediate_size', 7680)
  if inner % 2:
    keys.refuse('intermediate_size', inner, 'half of it is the width: give 2 n')
  cells = _cells(keys)
  own = {
    'rg_lru': _recurrent(keys, width),
    'attention': _attention(keys, width),
  }
  return {
    **table.patterned(cells, own),
    'model.width': width,
    'model.mlp_width': inner // 2,
    'model.mlp': 'geglu_tanh',
    'model.biases': True,
    'model.norm_scale': True,
    'model.norm_plus_one': True,
    'model.norm_epsilon': keys.number('rms_norm_eps', 1e-6),
    'model.embedding_multiplier': float(ml_dtypes.bfloat16(width**0.5)),
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
    'model.logits_cap': cap,
  }


def _cells(keys):
  """Returns the cell of each layer."""
  kinds = keys.names('block_types', [*BLOCKS]) or PUBLISHED
  layers = keys.whole('num_hidden_layers', 26, most=keys_lib.LAYERS)
  return tuple(BLOCKS[kinds[n % len(kinds)]] for n in range(layers))


def _recurrent(keys, width):
  heads, inner = _heads(keys), keys.whole('lru_width', width)
  if inner % heads:
    keys.refuse('lru_width', inner, f'{heads} heads must divide it')
  return {
    'heads': heads,
    'head_width': inner // heads,
    'convolution': keys.whole('conv1d_width', 4, most=keys_lib.TAPS),
    'whole_start': True,
  }


def _attention(keys, width):
  heads = _heads(keys)
  head = keys.one_of('head_dim', (width // heads,), width // heads)
  window = keys.whole('attention_window_size', WINDOW, least=2)
  return {
    'heads': heads,
    'head_width': head,
    'kv_heads': keys.whole('num_key_value_heads', heads),
    'window': window - 1,
    'rotary': rotary.base(keys),
    'rotary_width': rotary.rotated(keys, head, 0.5),
    'biases': True,
    'projection_bias': keys.flag('attention_bias', False),
  }


def _heads(keys):
  return keys.whole('num_attention_heads', 10)


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model, own = config.model, {}
  cells = model.pattern * model.periods
  if 'rg_lru' in cells:
    own |= _described_recurrent(table.of_cell(config, 'rg_lru').cell)
  if 'attention' in cells:
    own |= _described_attention(table.of_cell(config, 'attention'))
  by_cell = {cell: kind for kind, cell in BLOCKS.items()}
  return own | {
    'architectures': ['RecurrentGemmaForCausalLM'],
    'num_hidden_layers': model.layers,
    'hidden_size': model.width,
    'intermediate_size': 2 * model.mlp_width,
    'hidden_activation': ACTIVATION,
    'rms_norm_eps': model.norm_epsilon or 1e-6,
    'logits_soft_cap': model.logits_cap,
    'block_types': [by_cell[cell] for cell in _types(cells)],
  }


def _described_recurrent(cell):
  return {
    'num_attention_heads': cell.heads,
    'lru_width': cell.heads * cell.head_width,
    'conv1d_width': cell.convolution,
  }


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


def _types(cells: Sequence[str]) -> Sequence[str]:
  """Returns the shortest pattern that is repeated, the last time maybe cut."""
  for n in range(1, len(cells)):
    if all(cell == cells[m % n] for m, cell in enumerate(cells)):
      return cells[:n]
  return cells


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  listed = table.ends(
    config.model, vocabulary, ('model.embed_tokens', 'model.final_norm')
  )
  width = config.model.width
  for n, (ours, place, cell) in enumerate(table.layers(config.model)):
    theirs = f'model.layers.{n}'
    block = f'{theirs}.temporal_block', f'{ours}.cell', place
    own = table.of_cell(config, cell)
    listed += [
      table.scale(
        f'{theirs}.temporal_pre_norm', f'{ours}.cell_norm', width, place
      ),
      table.scale(
        f'{theirs}.channel_pre_norm', f'{ours}.mlp_norm', width, place
      ),
      *(
        _of_recurrent(own.cell, width, *block)
        if cell == 'rg_lru'
        else table.dense(llama.attention(own), *block)
      ),
      *table.dense(
        llama.mlp(config.model), f'{theirs}.mlp_block', f'{ours}.mlp', place
      ),
    ]
  return listed


def _of_recurrent(cell: rg_lru.Config, width, theirs, ours, place):
  H, P = cell.heads, cell.head_width
  S = H * P

  def project(half):
    return lambda x: x.T.reshape(H, 2, P, *x.shape[:-1])[:, half]

  dense = (
    table.Dense('linear_x', 'projection', (S, width), True, project(0)),
    table.Dense('linear_y', 'projection', (S, width), True, project(1)),
    table.Dense('linear_out', 'output', (width, S), True),
  )
  first, last = (lambda x: x[..., :P]), (lambda x: x[..., P:])
  rows = (
    ('conv_1d.weight', (S, 1, cell.convolution), 'taps', lambda x: x[::-1].T),
    ('conv_1d.bias', (S,), 'taps_bias', np.asarray),
    ('rg_lru.recurrent_param', (S,), 'decay', np.asarray),
    ('rg_lru.recurrent_gate_weight', (H, P, P), 'gate.kernel', first),
    ('rg_lru.recurrent_gate_bias', (H, P), 'gate.bias', first),
    ('rg_lru.input_gate_weight', (H, P, P), 'gate.kernel', last),
    ('rg_lru.input_gate_bias', (H, P), 'gate.bias', last),
  )
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]
