"""RWKV-7 of flash-linear-attention.

    x = layer_norm(embedding)
    x = x + rwkv7(layer_norm(x))       x = x + channel_mix(layer_norm(x))

The first layer has the first of these norms, which is that of our embedding,
and no map that mixes its values with the first layer's: ours stays at zero
there, and isn't written. The maps to low ranks are one set for all heads. The
decay's bias is that inside of the sigmoid in both. The variance of a head's
outputs gets norm_eps times the head's width, the squared length of its keys
1e-6 where norms are fused, and practically nothing elsewhere. Variants with
attention layers, other activations, norms without biases, or values whose
width differs from layer to layer are refused.
Source: Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution",
2025.
"""

import dataclasses
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import rwkv7
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields

MODEL_TYPES = {'rwkv7': 'RWKV7ForCausalLM'}
CELLS = ('rwkv7',)
NAMES = table.Names(
  'model.embeddings',
  'model.norm',
  'model.layers',
  embedding_norm='model.layers.0.pre_norm',
  absent='model.layers.0.attn.v_lora.',
)
NEEDED = {'hidden_act': 'sqrelu', 'norm_bias': True}
KEY_EPSILONS = {True: 1e-6, False: 1e-24}  # fuse_norm; 1e-12 squared
LOW_RANK = {'w': 'w_lora', 'a': 'a_lora', 'g': 'g_lora', rwkv7.MIX: 'v_lora'}
BIASES = {'w': 'decay_bias', 'a': 'rate_bias', rwkv7.MIX: 'mix_bias'}
RANKS = {  # of config.json, and theirs without it
  'w': ('decay_low_rank_dim', 64),
  'a': ('a_low_rank_dim', 64),
  'g': ('gate_low_rank_dim', 128),
  rwkv7.MIX: ('v_low_rank_dim', 16),
}
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 24, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 2048),
  fields.Field('norm_eps', 'model.norm_epsilon', 1e-5),
  fields.Field('norm_first', 'model.embedding_norm', True),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  keys.absent('attn')
  own = fields.options(keys, FIELDS)
  width, layers = own['model.width'], own['model.layers']
  heads = _heads(keys, width)
  K = width // heads
  decay, rate, gate, value = (keys.whole(*RANKS[part]) for part in RANKS)
  return {
    **own,
    **fields.head(keys, tied=False),
    'model.cell': 'rwkv7',
    'model.mlp': 'channel_mix',
    'model.mlp_width': keys.whole('intermediate_size', _inner(keys, width)),
    'model.norm': 'layer',
    'cell.heads': heads,
    'cell.key_width': K,
    'cell.value_width': _values(keys, width, layers) // heads,
    'cell.rank': decay,
    'cell.rate_rank': _other(rate, decay),
    'cell.gate_rank': _other(gate, decay),
    'cell.value_rank': _other(value, decay) if layers > 1 else 0,
    'cell.shared_gate': True,
    'cell.value_residual': layers > 1,
    'cell.norm_epsilon': K * own['model.norm_epsilon'],
    'cell.key_epsilon': KEY_EPSILONS[keys.flag('fuse_norm', True)],
  }


def _heads(keys, width):
  """Returns the number of heads, which head_dim or num_heads gives."""
  if keys.values.get('head_dim', 64) is None:
    name = 'num_heads'
    heads = keys.whole(name)
    wrong = width % heads
  else:
    name = 'head_dim'
    K = keys.whole(name, 64)
    wrong = width % K
    heads = width // K
  if wrong:
    keys.refuse(name, keys.get(name), f'it must divide hidden_size={width}')
  return keys.one_of('num_heads', (heads,), heads)


def _inner(keys, width):
  """Returns the MLP's width: a ratio, rounded up to 32s."""
  inner = int(width * keys.number('hidden_ratio', 4.0))
  return -(-inner // 32) * 32


def _values(keys, width, layers):
  """Returns the width of the values of all heads, the same in each layer."""
  given = keys.values.get('value_dim')
  if given is None:
    return width
  each = given if isinstance(given, list) else [given] * layers
  if len(each) != layers or any(x != each[0] for x in each):
    keys.refuse('value_dim', given, f'give one width for all {layers} layers')
  one = dataclasses.replace(keys, values={'value_dim': each[0]})
  value = one.whole('value_dim')
  if value < width or value % width:
    keys.refuse('value_dim', value, f'give a multiple of hidden_size={width}')
  return value


def _other(rank, of_decay):
  """Returns a rank as our options have it: 0 where it is the decay's."""
  return 0 if rank == of_decay else rank


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  cell = config.cell
  return {
    **NEEDED,
    **{RANKS[part][0]: rank for part, rank in cell.ranks.items()},
    **fields.describe(config, FIELDS),
    'attn': None,
    'intermediate_size': config.model.mlp_width,
    'fuse_norm': cell.key_epsilon != KEY_EPSILONS[False],
    'head_dim': cell.key_width,
    'num_heads': cell.heads,
    'value_dim': [cell.heads * cell.value_width] * config.model.layers,
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  width, inner = config.model.width, config.model.mlp_width
  mlp = [
    *table.dense('key', 'mlp.up', (inner, width)),
    *table.dense('value', 'mlp.down', (width, inner)),
    table.Tensor('x_k', (width,), 'mlp_shift.share'),
  ]
  return [
    *table.layer_norm('attn_norm', 'cell_norm', width),
    *table.layer_norm('ffn_norm', 'mlp_norm', width),
    *table.within('attn', 'cell', _cell(config.cell, width)),
    *(dataclasses.replace(x, name=f'ffn.{x.name}') for x in mlp),
  ]


def _cell(cell: rwkv7.Config, width):
  keys, values = cell.heads * cell.key_width, cell.heads * cell.value_width
  rows = [
    *table.dense('r_proj', 'projections_r', (keys, width)),
    *table.dense('k_proj', 'projections_k', (keys, width)),
    *table.dense('v_proj', 'projections_v', (values, width)),
    *table.dense('o_proj', 'output', (width, values)),
    table.Tensor('k_k', (keys,), 'key_scale'),
    table.Tensor('k_a', (keys,), 'key_rate'),
    table.Tensor('r_k', (cell.heads, cell.key_width), 'bonus'),
    table.Tensor('g_norm.weight', (values,), 'norm_scale'),
    table.Tensor('g_norm.bias', (values,), 'norm_bias'),
    *(
      table.Tensor(f'x_{part}', (1, 1, width), 'shift', lambda x, n=n: x[n])
      for n, part in enumerate(rwkv7.SHIFTS)
    ),
  ]
  outputs = {'w': keys, 'a': keys, 'g': values, rwkv7.MIX: values}
  for part, rank in cell.ranks.items():
    name, shape = f'{LOW_RANK[part]}.lora', (outputs[part], rank)
    up, down = f'up_{part}', f'projections_{part}'
    rows += table.dense(f'{name}.0', down, (rank, width))
    rows.append(table.Tensor(f'{name}.2.weight', shape, up, table.low_rank))
    if part in BIASES:
      rows.append(table.Tensor(f'{name}.2.bias', shape[:1], BIASES[part]))
  return rows
