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

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import rwkv7
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import table

MODEL_TYPES = ('rwkv7',)
CELLS = ('rwkv7',)
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


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  for name, value in NEEDED.items():
    keys.one_of(name, (value,), value)
  keys.absent('attn')
  width, layers = keys.whole('hidden_size', 2048), _layers(keys)
  heads = _heads(keys, width)
  K = width // heads
  epsilon = keys.number('norm_eps', 1e-5)
  tied = keys.flag('tie_word_embeddings', False)
  decay, rate, gate, value = (keys.whole(*RANKS[part]) for part in RANKS)
  return {
    'model.cell': 'rwkv7',
    'model.layers': layers,
    'model.width': width,
    'model.mlp': 'channel_mix',
    'model.mlp_width': keys.whole('intermediate_size', _inner(keys, width)),
    'model.norm': 'layer',
    'model.norm_epsilon': epsilon,
    'model.embedding_norm': keys.flag('norm_first', True),
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
    'cell.heads': heads,
    'cell.key_width': K,
    'cell.value_width': _values(keys, width, layers) // heads,
    'cell.rank': decay,
    'cell.rate_rank': _other(rate, decay),
    'cell.gate_rank': _other(gate, decay),
    'cell.value_rank': _other(value, decay) if layers > 1 else 0,
    'cell.shared_gate': True,
    'cell.value_residual': layers > 1,
    'cell.norm_epsilon': K * epsilon,
    'cell.key_epsilon': KEY_EPSILONS[keys.flag('fuse_norm', True)],
  }


def _layers(keys):
  return keys.whole('num_hidden_layers', 24, most=keys_lib.LAYERS)


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
  model, cell = config.model, config.cell
  ranks = {RANKS[part][0]: rank for part, rank in cell.ranks.items()}
  epsilon = model.norm_epsilon or 1e-5
  return (
    NEEDED
    | ranks
    | {
      'architectures': ['RWKV7ForCausalLM'],
      'attn': None,
      'num_hidden_layers': model.layers,
      'hidden_size': model.width,
      'intermediate_size': model.mlp_width,
      'norm_eps': epsilon,
      'norm_first': model.embedding_norm,
      'fuse_norm': cell.key_epsilon != KEY_EPSILONS[False],
      'head_dim': cell.key_width,
      'num_heads': cell.heads,
      'value_dim': [cell.heads * cell.value_width] * model.layers,
    }
  )


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  model = config.model
  names = 'model.embeddings', 'model.norm'
  listed = table.ends(model, vocabulary, names)
  listed.append(_bias('model.norm', 'norm', model.width))
  if model.embedding_norm:
    listed += _norm('model.layers.0.pre_norm', 'embedding_norm', model.width)
  for n, (ours, place, _) in enumerate(table.layers(model)):
    theirs = f'model.layers.{n}'
    for name, leaf in (('attn_norm', 'cell_norm'), ('ffn_norm', 'mlp_norm')):
      names = f'{theirs}.{name}', f'{ours}.{leaf}'
      listed += _norm(*names, model.width, place)
    listed += _cell(config, f'{theirs}.attn', f'{ours}.cell', place)
    listed += _mlp(model, f'{theirs}.ffn', ours, place)
  return listed


def _bias(theirs, ours, width, layer=None):
  return table.Tensor(f'{theirs}.bias', (width,), f'{ours}.bias', layer=layer)


def _norm(theirs, ours, width, layer=None):
  """Returns the scale and the bias of a norm."""
  scale = table.scale(theirs, ours, width, layer)
  return [scale, _bias(theirs, ours, width, layer)]


def _mlp(model, theirs, ours, place):
  width, inner = model.width, model.mlp_width
  dense = [
    table.Dense('key', 'up', (inner, width)),
    table.Dense('value', 'down', (width, inner)),
  ]
  share = f'{ours}.mlp_shift.share'
  return [
    *table.dense(dense, theirs, f'{ours}.mlp', place),
    table.Tensor(f'{theirs}.x_k', (width,), share, layer=place),
  ]


def _cell(config, theirs, ours, place):
  cell: rwkv7.Config = config.cell
  width, heads = config.model.width, cell.heads
  keys, values = heads * cell.key_width, heads * cell.value_width
  ranks = dict(cell.ranks)
  if not place:
    ranks.pop(rwkv7.MIX, None)
  dense = [
    table.Dense('r_proj', 'projections_r', (keys, width)),
    table.Dense('k_proj', 'projections_k', (keys, width)),
    table.Dense('v_proj', 'projections_v', (values, width)),
    table.Dense('o_proj', 'output', (width, values)),
    *(
      table.Dense(f'{LOW_RANK[part]}.lora.0', f'projections_{part}', (r, width))
      for part, r in ranks.items()
    ),
  ]
  rows = [
    ('k_k', (keys,), 'key_scale', np.asarray),
    ('k_a', (keys,), 'key_rate', np.asarray),
    ('r_k', (heads, cell.key_width), 'bonus', np.asarray),
    ('g_norm.weight', (values,), 'norm_scale', np.asarray),
    ('g_norm.bias', (values,), 'norm_bias', np.asarray),
  ]
  for n, part in enumerate(rwkv7.SHIFTS):
    rows.append((f'x_{part}', (1, 1, width), 'shift', lambda x, n=n: x[n]))
  outputs = {'w': keys, 'a': keys, 'g': values, rwkv7.MIX: values}
  for part, rank in ranks.items():
    name, shape = f'{LOW_RANK[part]}.lora.2', (outputs[part], rank)
    rows.append((f'{name}.weight', shape, f'up_{part}', _of_heads))
    if part in BIASES:
      rows.append((f'{name}.bias', shape[:1], BIASES[part], np.asarray))
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]


def _of_heads(x):
  """Returns the view HxOxR of a low-rank map HxRxO."""
  return x.swapaxes(1, 2)
