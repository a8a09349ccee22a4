"""Zamba2: Mamba-2, and in some layers a block of attention that they share.

    x = x + mamba2(rms_norm(x + t) * s)

with the t of models/shared_block.py in the layers that layers_block_type calls
'hybrid', 0 in others. The num_mem_blocks shared blocks have their tensors in
the first layers that use them, with the low-rank changes of all their layers.
Source: Glorioso et al., "The Zamba2 Suite: Technical Report", 2024.
"""

import re
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import mamba2
from rnn_jax.models import period

MODEL_TYPES = {'zamba2': 'Zamba2ForCausalLM'}
CELLS = ('mamba2',)
LAYERS_DIFFER = True
NAMES = table.Names(
  'model.embed_tokens', 'model.final_layernorm', 'model.layers'
)
LAYERS = 'layers_block_type'
OLDER = 'layer_types'  # another name of it
KINDS = {
  'mamba': 'mamba',
  'linear_attention': 'mamba',
  'hybrid': 'hybrid',
}
# Unless the keys say: those of the published 2.7 billion weights.
DEFAULT = [n in (6, 12, 18, 24, 30, 36, 42, 47, 51) for n in range(54)]
EPSILON = 1e-5
NEEDED = {
  'add_bias_linear': False,
  'use_conv_bias': True,
  'use_long_context': False,
}
FIELDS = (
  fields.Field('hidden_size', 'model.width', 2560),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', EPSILON),
)
SHARED = (
  fields.Field('num_mem_blocks', 'count', 1),
  fields.Field('num_attention_heads', 'heads', 32),
  fields.Field('adapter_rank', 'adapter_rank', 128),
  fields.Field('use_shared_attention_adapter', 'attention_adapters', False),
)
MAMBA = (
  fields.Field('n_mamba_heads', 'heads', 8),
  fields.Field('mamba_ngroups', 'groups', 1),
  fields.Field('mamba_d_state', 'key_width', 64),
  fields.Field('mamba_d_conv', 'convolution', 4, most=keys_lib.TAPS),
  fields.Field('time_step_min', 'min_step', 0.001),
)
LAYER = re.compile(r'(model\.layers\.(\d+))\.(?=mamba|input_layernorm)')


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  own = fields.options(keys, FIELDS)
  width, hybrid = own['model.width'], _hybrid(keys)
  mixer = fields.options(keys, MAMBA)
  inner = keys.whole('mamba_expand', 2) * width
  heads = mixer['heads']
  if inner % heads:
    keys.refuse('n_mamba_heads', heads, f'it must divide {inner}')
  mixer |= {
    'value_width': inner // heads,
    'norm_scale': True,
    'norm_epsilon': EPSILON,
  }
  cells = len(hybrid) * ('mamba2',)
  shared = _shared(keys, width, hybrid)
  # Without a shared block, layers are alike.
  section = 'cell.mamba2' if shared else 'cell'
  return {
    **own,
    **fields.head(keys, tied=True),
    **({'model.cells': cells} if shared else {'model.cell': 'mamba2'}),
    'model.layers': len(cells),
    'model.norm_scale': True,
    **{f'model.shared_block.{key}': x for key, x in shared.items()},
    **{f'{section}.{key}': x for key, x in mixer.items()},
  }


def _hybrid(keys):
  """Returns for each layer whether it uses a shared block."""
  kinds = None
  for name in (LAYERS, OLDER):
    given = keys.names(name, [*KINDS])
    kinds = given if kinds is None else kinds
  hybrid = DEFAULT if kinds is None else [KINDS[x] == 'hybrid' for x in kinds]
  if not hybrid or len(hybrid) > keys_lib.LAYERS:
    keys.refuse(LAYERS, kinds, f'give 1 to {keys_lib.LAYERS}')
  layers = keys.whole('num_hidden_layers', len(hybrid))
  if layers != len(hybrid):
    keys.refuse('num_hidden_layers', layers, f'{LAYERS} has {len(hybrid)}')
  return hybrid


def _shared(keys, width, hybrid):
  """Returns the options of shared blocks; {} if no layer uses one."""
  layers = tuple(n for n, uses in enumerate(hybrid) if uses)
  if not layers:
    return {}
  own = fields.options(keys, SHARED)
  heads, count = own['heads'], own['count']
  if count > len(layers):
    keys.refuse(
      'num_mem_blocks', count, f'{len(layers)} layers use them: give less'
    )
  if 2 * width % heads:
    keys.refuse('num_attention_heads', heads, f'it must divide {2 * width}')
  activation = keys.one_of('hidden_act', fields.ACTIVATIONS, 'gelu')
  has_key = keys.get('num_key_value_heads') is not None
  inner = keys.get('intermediate_size') is not None
  rotates = keys.flag('use_mem_rope', False)
  return own | {
    'layers': layers,
    'kv_heads': keys.whole('num_key_value_heads', heads) if has_key else heads,
    'mlp': fields.ACTIVATIONS[activation],
    'mlp_width': keys.whole('intermediate_size') if inner else 4 * width,
    'rotary': rotary.base(keys, (*rotary.SCALINGS,)) if rotates else 0.0,
    'rotary_scaling': rotary.scaling(keys) if rotates else (),
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model, cell = config.model, table.of_cell(config, 'mamba2').cell
  shared = model.shared_block
  own = {}
  if shared.count:
    own = fields.describe(shared, SHARED) | {
      'num_key_value_heads': shared.kv_heads or shared.heads,
      'intermediate_size': shared.mlp_width,
      'hidden_act': fields.activation(shared.mlp),
      'use_mem_rope': shared.rotary > 0,
    }
  if shared.rotary:
    described = rotary.described(shared.rotary, shared.rotary_scaling)
    own['rope_parameters'] = described
  return {
    **NEEDED,
    **fields.describe(config, FIELDS),
    **fields.describe(cell, MAMBA),
    **own,
    'mamba_expand': cell.heads * cell.value_width // model.width,
    'num_hidden_layers': model.layers,
    LAYERS: [
      'hybrid' if n in shared.layers else 'linear_attention'
      for n in range(model.layers)
    ],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer that uses no shared block."""
  norm = table.scale('input_layernorm', 'cell_norm', config.model.width)
  return [norm, *table.within('mamba', 'cell', mamba2.mixer(config))]


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Row]:
  """Returns the table of a model's tensors; `vocabulary` is its size."""
  shared = config.model.shared_block

  def named(name):
    match = LAYER.match(name)
    if not match or int(match[2]) not in shared.layers:
      return name
    return LAYER.sub(r'\1.mamba_decoder.', name)

  rows = [
    row.named(named) for row in table.stack(config, vocabulary, NAMES, layer)
  ]
  for use, n in enumerate(shared.layers):
    first = f'{NAMES.layers}.{shared.layers[shared.number(n)]}'
    own = f'stack.blocks.{period.ENTRY}_{n}'
    width = config.model.width
    linear = table.dense('linear', 'linear', (width, width))
    rows += table.within(f'{NAMES.layers}.{n}', own, linear, 0)
    changes = _adapters(config.model, use)
    rows += table.within(f'{first}.shared_transformer', own, changes, 0)
  for number in range(shared.count):
    theirs = f'{NAMES.layers}.{shared.layers[number]}.shared_transformer'
    ours = f'stack.blocks.{period.SHARED}_{number}'
    rows += table.within(theirs, ours, _block(config.model), 0)
  return rows


def _block(model):
  """Returns the tensors of a shared block."""
  own, D, F = model.shared_block, model.width, model.shared_block.mlp_width
  G, K = own.kv_heads or own.heads, own.head_width(model.width)
  widths = {'q_proj': own.heads // G * K, 'k_proj': K, 'v_proj': K}
  attention = [
    *table.projected({name: name for name in widths}, widths, G, 2 * D),
    *table.dense('o_proj', 'output', (D, own.heads * K)),
  ]
  return [
    table.scale('input_layernorm', 'input_norm', 2 * D),
    *table.within('self_attn', 'attention', attention),
    table.scale('pre_ff_layernorm', 'mlp_norm', D),
    *table.dense('feed_forward.gate_up_proj', 'gate_up', (2 * F, D)),
    *table.dense('feed_forward.down_proj', 'down', (D, F)),
  ]


def _adapters(model, use):
  """Returns the tensors of the changes of the `use`-th layer that has some."""
  own, D = model.shared_block, model.width
  K, G = own.head_width(D), own.kv_heads or own.heads
  lists = {'mlp': ('feed_forward.gate_up_proj', D, 2 * own.mlp_width)}
  if own.attention_adapters:
    lists |= {
      'query': ('self_attn.linear_q', 2 * D, own.heads * K),
      'key': ('self_attn.linear_k', 2 * D, G * K),
      'value': ('self_attn.linear_v', 2 * D, G * K),
    }
  rows = []
  for name, (theirs, inputs, outputs) in lists.items():
    prefix, ours = f'{theirs}_adapter_list.{use}', f'{name}_adapter'
    rank = own.adapter_rank
    rows += table.dense(f'{prefix}.0', f'{ours}.reduce', (rank, inputs))
    rows += table.dense(f'{prefix}.1', f'{ours}.expand', (outputs, rank))
  return rows
