"""Kimi Linear: Kimi Delta Attention and latent attention without positions.

    x = x + cell(rms_norm(x) * s)        x = x + mlp(rms_norm(x) * t)

layer_types says which cell a layer has, or the lists of linear_attn_config,
which count from 1. The first layers have an MLP, the others experts chosen by
sigmoids and a bias, and one that all tokens run (mlp_layer_types, or
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
from collections.abc import Mapping
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import kda
from rnn_jax.cells import latent_attention
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = {'kimi_linear': 'KimiLinearForCausalLM'}
NAMES = llama.NAMES
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
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 27, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 2304),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', 1e-5),
)
LINEAR = {  # and their names in linear_attn_config
  fields.Field('linear_head_dim', 'key_width', 128): 'head_dim',
  fields.Field('linear_num_heads', 'heads', 32): 'num_heads',
  fields.Field(
    'linear_conv_kernel_dim', 'convolution', 4, most=keys_lib.TAPS
  ): 'short_conv_kernel_size',
}
ATTENTION = (
  fields.Field('num_attention_heads', 'heads', 32),
  fields.Field('qk_nope_head_dim', 'key_width', 128),
  fields.Field('qk_rope_head_dim', 'shared_width', 64),
  fields.Field('v_head_dim', 'value_width', 128),
  fields.Field('kv_lora_rank', 'kv_rank', 512),
  fields.Field('q_lora_rank', 'query_rank', 0, least=0),
  fields.Field('attention_bias', 'biases', False),
)
PROJECTED = ('query', 'key', 'value', 'beta')  # by one matrix in ours
EXPERTS = 'block_sparse_moe'
ROUTING = {  # keys of options of experts, and their values if not given
  'count': ('num_experts', 256),
  'per_token': ('num_experts_per_token', 8),
  'normalized': ('moe_renormalize', True),
  'groups': ('num_expert_group', 1),
  'groups_per_token': ('topk_group', 1),
  'gate_scale': ('routed_scaling_factor', 2.446),
}
EPSILON = 1e-6  # of the norms of latents


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  renamed = {OLDER.get(k, k): x for k, x in keys.values.items()}
  keys = dataclasses.replace(keys, values=renamed)
  fields.need(keys, NEEDED)
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  own = fields.options(keys, FIELDS)
  layers, epsilon = own['model.layers'], own['model.norm_epsilon']
  of_cell = {
    'kda': _linear(keys, epsilon),
    'latent_attention': _attention(keys),
  }
  cells = fields.patterned(_cells(keys, layers), of_cell)
  return {
    **own,
    **cells,
    **_mlps(keys, layers, len(cells.get('model.cells', ('',)))),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.head_bias': False,
  }


def _cells(keys, layers):
  """Returns the cell of each layer."""
  kinds = fields.by_layer(
    keys, 'layer_types', KINDS, layers, lambda: _listed(keys, layers)
  )
  return [KINDS[kind] for kind in kinds]


def _listed(keys, layers):
  """Returns the kind of each layer from linear_attn_config, or as published."""
  given = keys.section('linear_attn_config')
  linear, full = KINDS
  lists = {
    linear: given.items('kda_layers', layers),
    full: given.items('full_attn_layers', layers),
  }
  if None in lists.values():
    return [full if n and n % 4 == 0 else linear for n in range(layers)]
  whole = all(type(n) is int for own in lists.values() for n in own)
  kinds = {n: kind for kind in lists for n in lists[kind]} if whole else {}
  if sorted(kinds) != [*range(1, layers + 1)]:
    keys.refuse(
      'linear_attn_config',
      lists,
      f'give each of num_hidden_layers={layers} once, from 1',
    )
  return [kinds[n] for n in range(1, layers + 1)]


def _linear(keys, epsilon):
  given = keys.section('linear_attn_config')
  own = {
    field.ours: field._replace(theirs=name, default=field.read(keys)).read(
      given
    )
    for field, name in LINEAR.items()
  }
  return own | {
    'value_width': own['key_width'],
    'rank': own['key_width'],
    'shared_gate': True,
    'output_gate_bias': False,
    'norm_scale': True,
    'norm_epsilon': epsilon,
  }


def _attention(keys):
  own = fields.options(keys, ATTENTION)
  fields.need(keys, {'num_key_value_heads': own['heads']})
  return own | {'rotary': 0.0, 'norm_epsilon': EPSILON}


def _mlps(keys, layers, period):
  """Returns the options of MLPs and experts."""
  first = keys.whole('first_k_dense_replace', 1, least=0)
  name = 'mlp_layer_types'
  kinds = fields.by_layer(
    keys,
    name,
    ('dense', 'sparse'),
    layers,
    lambda: ['dense' if n < first else 'sparse' for n in range(layers)],
  )
  inner, dense = keys.whole('intermediate_size', 9216), kinds.count('dense')
  if dense == layers:
    return {'model.mlp_width': inner}
  if 'dense' in kinds[dense:] or dense > period:
    keys.refuse(
      name,
      [*kinds],
      f"only the first layers can be 'dense', at most {period}, after which "
      'layer_types repeat',
    )
  width = keys.whole('moe_intermediate_size', 1024)
  own = routing(keys, ROUTING) | {
    'model.mlp_width': width,
    'model.experts.shared_width': keys.whole('num_shared_experts', 1) * width,
    'model.experts.shared_gate': False,
  }
  if dense:
    own['model.experts.dense_layers'] = dense
    own['model.experts.dense_width'] = inner
  return own


def routing(
  keys: keys_lib.Keys, named: Mapping[str, tuple[str, Any]]
) -> dict[str, Any]:
  """Returns the options of experts that are chosen by sigmoids.

  Args:
    keys: of config.json.
    named: as ROUTING.

  Raises:
    InputError: groups don't divide the experts, or a gate would always be 1.
  """
  count = keys.whole(*named['count'], least=2, most=keys_lib.EXPERTS)
  groups = keys.whole(*named['groups'])
  kept = keys.whole(*named['groups_per_token'])
  if kept == groups:
    groups = kept = 1  # the same as no groups
  if groups < 1 or not 0 < kept <= groups or count % groups:
    of_all, of_token, of_groups = (
      named[part][0] for part in ('count', 'groups_per_token', 'groups')
    )
    keys.refuse(
      of_groups,
      groups,
      f'it must divide {of_all}={count}, and {of_token}={kept} be from 1 to it',
    )
  chosen = zip(named['per_token'], named['normalized'], strict=True)
  return mixtral.routed_options(keys, *chosen) | {
    'model.experts.count': count,
    'model.experts.scores': 'sigmoid',
    'model.experts.correction': True,
    'model.experts.groups': groups,
    'model.experts.groups_per_token': kept,
    'model.experts.gate_scale': keys.number(*named['gate_scale']),
  }


def described_routing(
  experts: config_lib.Experts, named: Mapping[str, tuple[str, Any]]
) -> dict[str, Any]:
  """Returns the keys of `routing`."""
  own = {name: getattr(experts, part) for part, (name, _) in named.items()}
  normalized = experts.normalized and experts.per_token > 1
  return own | {named['normalized'][0]: normalized}


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  kinds, own = fields.describe_cells(
    config,
    KINDS,
    {
      'kda': lambda config: fields.describe(config.cell, LINEAR),
      'latent_attention': _described_attention,
    },
  )
  return {
    **own,
    **fields.describe(config, FIELDS),
    **_described_mlps(config.model),
    'layer_types': kinds,
    'hidden_act': 'silu',
  }


def _described_attention(config):
  cell = config.cell
  return fields.describe(cell, ATTENTION) | {
    'num_key_value_heads': cell.heads,
    'q_lora_rank': cell.query_rank or None,
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
    **described_routing(experts, ROUTING),
    'num_shared_experts': experts.shared_width // model.mlp_width,
  }
  return own | ({'intermediate_size': experts.dense_width} if dense else {})


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  cell = _linear_rows if config.model.cell == 'kda' else _latent_rows
  own = cell(config.cell, config.model.width)
  return [
    *llama.norms(config.model.width),
    *table.within('self_attn', 'cell', own),
    *_mlp(config.model),
  ]


def _linear_rows(cell: kda.Config, width):
  H, K, rank = cell.heads, cell.key_width, cell.rank
  inner = H * cell.value_width
  widths = {part: cell.widths[part] for part in PROJECTED}
  mixed = {part: cell.widths[part] for part in delta.Cell.mixed}
  names = {part: f'{part[0]}_proj' for part in widths}
  taps = {part: f'{part[0]}_conv1d' for part in mixed}
  convolved = table.convolved(taps, mixed, H, cell.convolution)
  gate = [
    *table.dense('f_a_proj', 'decay_down', (rank, width)),
    table.Tensor('f_b_proj.weight', (H * K, rank), 'decay_up', table.low_rank),
    table.Tensor('A_log', (1, 1, H, 1), 'log_rate'),
    table.Tensor('dt_bias', (H * K,), 'step_bias'),
  ]
  rows = sum(x.shape[0] for x in convolved)
  return [
    *table.projected(names, widths, H, width),
    *convolved,
    *gate,
    *table.dense('g_a_proj', 'output_gate_down', (rank, width)),
    table.Tensor(
      'g_b_proj.weight', (inner, rank), 'output_gate_up', table.low_rank
    ),
    table.scale('o_norm', 'norm', cell.value_width),
    *table.dense('o_proj', 'output', (width, inner)),
    # The names of transformers' own modules.
    table.Joined(
      'conv1d.weight',
      (rows, 1, cell.convolution),
      [x.name for x in convolved],
    ),
    *table.renamed(gate, '', 'forget_gate.'),
  ]


def _latent_rows(cell: latent_attention.Config, width):
  H, R, K = cell.heads, cell.shared_width, cell.key_width
  C, rank, biased = cell.kv_rank, cell.query_rank, cell.biases

  def queries(x):
    by_head = x.T.reshape(H, R + K, len(x))
    return [y for own in by_head for y in (own[R:], own[:R])]

  rows = H * (R + K)
  if rank:
    query = [
      *table.dense('q_a_proj', 'query_down', (rank, width), biased),
      table.scale('q_a_layernorm', 'query_norm', rank),
      *table.dense('q_b_proj', 'query_up', (rows, rank), view=queries),
    ]
  else:
    query = table.dense('q_proj', 'query', (rows, width), view=queries)
  keys_and_values = H * (K + cell.value_width), C
  return [
    *query,
    *table.dense('kv_a_proj_with_mqa', 'latent', (C + R, width), biased),
    table.scale('kv_a_layernorm', 'latent_norm', C),
    *table.dense('kv_b_proj', 'expand', keys_and_values),
    *table.dense('o_proj', 'output', (width, H * cell.value_width), biased),
  ]


def _mlp(model):
  if not model.experts.count:
    rows = table.within('mlp', 'mlp', llama.mlp(model))
    return rows + table.renamed(rows, 'mlp', EXPERTS)
  E, shared = model.experts.count, model.experts.shared_width
  own = [
    table.Tensor('gate.e_score_correction_bias', (E,), 'router_bias'),
    *table.within(
      'shared_experts', 'shared', llama.gated_mlp(shared, model.width)
    ),
  ]
  routed = mixtral.routed(model, EXPERTS, mixtral.MIXTRAL)
  own = table.within(EXPERTS, 'experts', own)
  return [*routed, *own, *table.renamed([routed[0], *own], EXPERTS, 'mlp')]
