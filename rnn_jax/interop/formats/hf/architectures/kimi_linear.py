"""Kimi Linear: Kimi Delta Attention and latent attention without positions.

    x = x + cell(rms_norm(x) * s)        x = x + mlp(rms_norm(x) * t)

layer_types says which cell a layer has, or the lists of linear_attn_config,
which count from 1. The first layers have an MLP, the others experts chosen by
sigmoids and a bias, beside one that all tokens run (mlp_layer_types, or
first_k_dense_replace). In a query of latent attention a head's own channels are
first in theirs, those of the shared keys in ours; the norms of latents add 1e-6
to the mean square whatever rms_norm_eps is. Projections of Kimi Delta Attention
are one for each part in theirs, and their first tap is of the oldest input.

Names are those of published folders. transformers writes a dense MLP under the
name of experts, block_sparse_moe, and with `save_original_format=False` joins
experts and convolutions and has other names; all of these are read.
Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention
Architecture", 2025.
"""

import dataclasses
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import kda
from rnn_jax.cells import latent_attention
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import gated_deltanet as fla
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = ('kimi_linear',)
CELLS = ('kda', 'latent_attention')
KINDS = {'linear_attention': 'kda', 'full_attention': 'latent_attention'}
OLDER = {  # names of keys that have two
  'n_group': 'num_expert_group',
  'norm_topk_prob': 'moe_renormalize',
  'num_local_experts': 'num_experts',
  'num_experts_per_tok': 'num_experts_per_token',
  'n_shared_experts': 'num_shared_experts',
}
NEEDED = {  # what the model computes; transformers doesn't read all of these
  'tie_word_embeddings': False,
  'mla_use_nope': True,
  'moe_layer_freq': 1,
  'moe_router_activation_func': 'sigmoid',
  'num_nextn_predict_layers': 0,
}
OF_LINEAR = {  # keys of linear_attn_config
  'linear_head_dim': 'head_dim',
  'linear_num_heads': 'num_heads',
  'linear_conv_kernel_dim': 'short_conv_kernel_size',
}
NORMS = {'input': 'cell_norm', 'post_attention': 'mlp_norm'}
PROJECTED = ('query', 'key', 'value', 'beta')  # by one matrix in ours
LOW = {'decay': 'f', 'output_gate': 'g'}  # maps of a low rank
EXPERTS = 'block_sparse_moe'
EPSILON = 1e-6  # of the norms of latents


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  renamed = {OLDER.get(k, k): x for k, x in keys.values.items()}
  keys = dataclasses.replace(keys, values=renamed)
  for name, value in NEEDED.items():
    keys.one_of(name, (value,), value)
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  epsilon = keys.number('rms_norm_eps', 1e-5)
  own = {'kda': _linear(keys, epsilon), 'latent_attention': _attention(keys)}
  cells = table.patterned(_cells(keys), own)
  return {
    **cells,
    **_mlps(keys, len(cells.get('model.cells', ('',)))),
    'model.width': keys.whole('hidden_size', 2304),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.norm_epsilon': epsilon,
    'model.head_bias': False,
  }


def _kinds(keys, name, known, default):
  """Returns a list of a name for each layer."""
  layers = keys.whole('num_hidden_layers', 27, most=keys_lib.LAYERS)
  kinds = keys.names(name, [*known])
  kinds = default(layers) if kinds is None else kinds
  if len(kinds) != layers:
    keys.refuse('num_hidden_layers', layers, f'{name} has {len(kinds)}')
  return kinds


def _cells(keys):
  """Returns the cell of each layer."""
  given = keys.section('linear_attn_config')

  def default(layers):
    linear, full = KINDS
    lists = {
      linear: given.items('kda_layers', layers),
      full: given.items('full_attn_layers', layers),
    }
    if None in lists.values():
      return [full if n and n % 4 == 0 else linear for n in range(layers)]
    whole = all(type(n) is int for own in lists.values() for n in own)
    listed = {n: kind for kind in lists for n in lists[kind]} if whole else {}
    if sorted(listed) != [*range(1, layers + 1)]:
      keys.refuse(
        'linear_attn_config',
        lists,
        f'give each of num_hidden_layers={layers} once, from 1',
      )
    return [listed[n] for n in range(1, layers + 1)]

  kinds = _kinds(keys, 'layer_types', KINDS, default)
  return [KINDS[kind] for kind in kinds]


def _linear(keys, epsilon):
  given = keys.section('linear_attn_config')
  defaults = {
    'linear_head_dim': (128, keys_lib.MAX_SIZE),
    'linear_num_heads': (32, keys_lib.MAX_SIZE),
    'linear_conv_kernel_dim': (4, keys_lib.TAPS),
  }
  head, heads, taps = (
    given.whole(
      OF_LINEAR[name], keys.whole(name, default, most=most), most=most
    )
    for name, (default, most) in defaults.items()
  )
  return {
    'heads': heads,
    'key_width': head,
    'value_width': head,
    'rank': head,
    'shared_gate': True,
    'output_gate_bias': False,
    'convolution': taps,
    'norm_scale': True,
    'norm_epsilon': epsilon,
  }


def _attention(keys):
  heads = keys.whole('num_attention_heads', 32)
  keys.one_of('num_key_value_heads', (heads,), heads)
  return {
    'heads': heads,
    'key_width': keys.whole('qk_nope_head_dim', 128),
    'shared_width': keys.whole('qk_rope_head_dim', 64),
    'value_width': keys.whole('v_head_dim', 128),
    'kv_rank': keys.whole('kv_lora_rank', 512),
    'query_rank': keys.whole('q_lora_rank', 0, least=0),
    'rotary': 0.0,
    'norm_epsilon': EPSILON,
    'biases': keys.flag('attention_bias', False),
  }


def _mlps(keys, period):
  """Returns the options of MLPs and experts."""
  first = keys.whole('first_k_dense_replace', 1, least=0)
  name = 'mlp_layer_types'
  kinds = _kinds(
    keys,
    name,
    ('dense', 'sparse'),
    lambda layers: ['dense' if n < first else 'sparse' for n in range(layers)],
  )
  inner, dense = keys.whole('intermediate_size', 9216), kinds.count('dense')
  if dense == len(kinds):
    return {'model.mlp_width': inner}
  if 'dense' in kinds[dense:] or dense > period:
    keys.refuse(
      name,
      [*kinds],
      f"only the first layers can be 'dense', at most {period}, after which "
      'layer_types repeat',
    )
  own = {'count': keys.whole('num_experts', 256, 2, keys_lib.EXPERTS)}
  own |= _routing(keys, own['count'])
  width = keys.whole('moe_intermediate_size', 1024)
  shared = keys.whole('num_shared_experts', 1)
  own |= {'shared_width': shared * width, 'shared_gate': False}
  if dense:
    own |= {'dense_layers': dense, 'dense_width': inner}
  return {'model.mlp_width': width} | {
    f'model.experts.{key}': value for key, value in own.items()
  }


def _routing(keys, count):
  chosen = keys.whole('num_experts_per_token', 8)
  normalized = keys.flag('moe_renormalize', True)
  if chosen == 1 and normalized:
    keys.refuse(
      'moe_renormalize',
      True,
      f'num_experts_per_token=1: {mixtral.NO_CHOICE}: only false is supported',
    )
  groups, kept = keys.whole('num_expert_group', 1), keys.whole('topk_group', 1)
  if kept == groups:
    groups = kept = 1  # the same as no groups
  if groups < 1 or not 0 < kept <= groups or count % groups:
    keys.refuse(
      'num_expert_group',
      groups,
      f'it must divide num_experts={count}, and topk_group={kept} be from 1 to '
      'it',
    )
  return {
    'per_token': chosen,
    'normalized': normalized or chosen == 1,
    'scores': 'sigmoid',
    'correction': True,
    'groups': groups,
    'groups_per_token': kept,
    'gate_scale': keys.number('routed_scaling_factor', 2.446),
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model = config.model
  describe_cells = {
    'kda': _described_linear,
    'latent_attention': _described_attention,
  }
  return table.describe_layers(config, KINDS, describe_cells) | {
    'architectures': ['KimiLinearForCausalLM'],
    'num_hidden_layers': model.layers,
    'hidden_size': model.width,
    'hidden_act': 'silu',
    'rms_norm_eps': model.norm_epsilon or 1e-6,
    **_described_mlps(model),
  }


def _described_linear(cell):
  return {
    'linear_num_heads': cell.heads,
    'linear_head_dim': cell.key_width,
    'linear_conv_kernel_dim': cell.convolution,
  }


def _described_attention(cell):
  return {
    'num_attention_heads': cell.heads,
    'num_key_value_heads': cell.heads,
    'qk_nope_head_dim': cell.key_width,
    'qk_rope_head_dim': cell.shared_width,
    'v_head_dim': cell.value_width,
    'kv_lora_rank': cell.kv_rank,
    'q_lora_rank': cell.query_rank or None,
    'attention_bias': cell.biases,
  }


def _described_mlps(model):
  experts, layers = model.experts, model.layers
  if not experts.count:
    return {
      'intermediate_size': model.mlp_width,
      'mlp_layer_types': ['dense'] * layers,
    }
  dense = experts.dense_layers
  own = {
    'mlp_layer_types': ['dense'] * dense + ['sparse'] * (layers - dense),
    'moe_intermediate_size': model.mlp_width,
    'num_experts': experts.count,
    'num_experts_per_token': experts.per_token,
    'moe_renormalize': experts.normalized and experts.per_token > 1,
    'num_expert_group': experts.groups,
    'topk_group': experts.groups_per_token,
    'routed_scaling_factor': experts.gate_scale,
    'num_shared_experts': experts.shared_width // model.mlp_width,
  }
  return own | ({'intermediate_size': experts.dense_width} if dense else {})


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  model, own = config.model, {'kda': _of_linear, 'latent_attention': _of_latent}
  listed = table.ends(model, vocabulary, ('model.embed_tokens', 'model.norm'))
  for n, (ours, place, cell) in enumerate(table.layers(model)):
    theirs = f'model.layers.{n}'
    listed += [
      table.scale(
        f'{theirs}.{norm}_layernorm', f'{ours}.{leaf}', model.width, place
      )
      for norm, leaf in NORMS.items()
    ]
    listed += own[cell](
      table.of_cell(config, cell).cell,
      model.width,
      (f'{theirs}.self_attn', f'{ours}.cell', place),
    )
    listed += _of_mlp(model, n, theirs, ours, place)
  return listed


def joined(config: config_lib.Config) -> list[table.Joined]:
  """Returns the tensors that folders have under other names; see table.py."""
  model, listed = config.model, []
  for n, (_, _, cell) in enumerate(table.layers(model)):
    theirs = f'model.layers.{n}'
    if cell == 'kda':
      own = table.of_cell(config, cell).cell
      listed += _joined_linear(own, model.width, f'{theirs}.self_attn')
    older, newer = f'{theirs}.{EXPERTS}', f'{theirs}.mlp'
    if _is_dense(model, n):
      listed += [
        table.Joined(
          f'{older}.{row.name}.weight',
          row.shape,
          [f'{newer}.{row.name}.weight'],
        )
        for row in llama.mlp(_of_dense(model))
      ]
      continue
    listed += mixtral.joined_experts(model, newer, older, mixtral.MIXTRAL)
    others = table.dense(_of_shared(model), older, '', None)
    others += _of_router(model, older, '', None)
    listed += [
      table.Joined(newer + x.name.removeprefix(older), x.shape, [x.name])
      for x in others
    ]
  return listed


def _of_linear(cell: kda.Config, width, where):
  theirs, ours, place = where
  H, K, rank = cell.heads, cell.key_width, cell.rank
  widths = {name: cell.widths[name] for name in PROJECTED}
  mixed = {name: cell.widths[name] for name in delta.Cell.mixed}
  dense = [
    table.Dense(
      f'{part[0]}_proj',
      'projection',
      (H * columns, width),
      view=fla.head_view(widths, part, H),
    )
    for part, columns in widths.items()
  ]
  dense += [
    table.Dense(f'{name}_a_proj', f'{part}_down', (rank, width))
    for part, name in LOW.items()
  ]
  inner = H * cell.value_width
  dense.append(table.Dense('o_proj', 'output', (width, inner)))

  def up(x):  # of HxRxK
    return x.swapaxes(1, 2)

  rows = [
    (
      f'{part[0]}_conv1d.weight',
      (H * columns, 1, cell.convolution),
      'taps',
      fla.head_view(mixed, part, H, step=-1),
    )
    for part, columns in mixed.items()
  ]
  rows += [
    ('f_b_proj.weight', (H * K, rank), 'decay_up', up),
    ('g_b_proj.weight', (inner, rank), 'output_gate_up', up),
    ('A_log', (1, 1, H, 1), 'log_rate', np.asarray),
    ('dt_bias', (H * K,), 'step_bias', np.asarray),
    ('o_norm.weight', (cell.value_width,), 'norm.scale', np.asarray),
  ]
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]


def _joined_linear(cell: kda.Config, width, prefix):
  """Returns the names of transformers' own modules."""
  own = {x.name: x.shape for x in _of_linear(cell, width, (prefix, '', None))}
  convolutions = [f'{prefix}.{part}_conv1d.weight' for part in 'qkv']
  rows = sum(own[name][0] for name in convolutions)
  shape = rows, 1, cell.convolution
  gates = ('f_a_proj.weight', 'f_b_proj.weight', 'dt_bias', 'A_log')
  return [table.Joined(f'{prefix}.conv1d.weight', shape, convolutions)] + [
    table.Joined(
      f'{prefix}.forget_gate.{name}',
      own[f'{prefix}.{name}'],
      [f'{prefix}.{name}'],
    )
    for name in gates
  ]


def _of_latent(cell: latent_attention.Config, width, where):
  theirs, ours, place = where
  H, R, K = cell.heads, cell.shared_width, cell.key_width
  C, rank, biased = cell.kv_rank, cell.query_rank, cell.biases

  def queries(x):
    by_head = x.T.reshape(H, R + K, len(x))
    return [y for own in by_head for y in (own[R:], own[:R])]

  rows = H * (R + K)
  if rank:
    dense = [
      table.Dense('q_a_proj', 'query_down', (rank, width), biased),
      table.Dense('q_b_proj', 'query_up', (rows, rank), view=queries),
    ]
  else:
    dense = [table.Dense('q_proj', 'query', (rows, width), view=queries)]
  dense += [
    table.Dense('kv_a_proj_with_mqa', 'latent', (C + R, width), biased),
    table.Dense('kv_b_proj', 'expand', (H * (K + cell.value_width), C)),
    table.Dense('o_proj', 'output', (width, H * cell.value_width), biased),
  ]
  norms = {'kv_a_layernorm': ('latent_norm', C)}
  if rank:
    norms['q_a_layernorm'] = 'query_norm', rank
  return table.dense(dense, theirs, ours, place) + [
    table.scale(f'{theirs}.{name}', f'{ours}.{leaf}', size, place)
    for name, (leaf, size) in norms.items()
  ]


def _is_dense(model, n):
  return not model.experts.count or n < model.experts.dense_layers


def _of_dense(model):
  return model.dense if model.experts.count else model


def _of_mlp(model, n, theirs, ours, place):
  if _is_dense(model, n):
    rows = llama.mlp(_of_dense(model))
    return table.dense(rows, f'{theirs}.mlp', f'{ours}.mlp', place)
  prefix, names = f'{theirs}.{EXPERTS}', mixtral.MIXTRAL
  router = _of_router(model, prefix, ours, place)
  return [
    *mixtral.routed(model, prefix, ours, place, names),
    *router[1:],
    *table.dense(_of_shared(model), prefix, f'{ours}.experts', place),
  ]


def _of_router(model, theirs, ours, place):
  E, leaf = model.experts.count, f'{ours}.experts'
  bias = f'{theirs}.gate.e_score_correction_bias'
  row = table.Dense('gate', 'router', (E, model.width))
  return [
    *table.dense((row,), theirs, leaf, place),
    table.Tensor(bias, (E,), f'{leaf}.router_bias', layer=place),
  ]


def _of_shared(model):
  D, F = model.width, model.experts.shared_width
  return (
    table.Dense('shared_experts.gate_proj', 'shared.gate', (F, D)),
    table.Dense('shared_experts.up_proj', 'shared.up', (F, D)),
    table.Dense('shared_experts.down_proj', 'shared.down', (D, F)),
  )
