"""Nemotron-H: Mamba-2, attention, MLPs and experts, each with a norm.

    x = x + part(rms_norm(x) * s)

A block of theirs has one part, named by layers_block_type, or by the letters M,
*, - and E of hybrid_override_pattern. A layer of ours is a block of Mamba-2 or
attention, and the block after it if that is an MLP or experts (model.mlps); an
MLP without one of the former before it is refused. MLPs have no gate, and the
activation relu(x)^2; experts are chosen as in Kimi Linear, and one is run by
all tokens. Attention has no positions. In a row, Mamba-2's dt is at least
time_step_min; ours is in every step, theirs not in decoding.

Names of published folders begin with 'backbone.', in transformers with
'model.'; both are read, as are experts that it joins.
Source: NVIDIA, "Nemotron-H: A Family of Accurate and Efficient Hybrid
Mamba-Transformer Models", 2025.
"""

import dataclasses
import itertools
import re
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba2 as mamba2_cell
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf.architectures import kimi_linear
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mamba2
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = {'nemotron_h': 'NemotronHForCausalLM'}
CELLS = ('mamba2', 'attention')
NAMES = table.Names(
  'backbone.embeddings',
  'backbone.norm_f',
  'backbone.layers',
  optional='backbone.',
  instead='model.',
)
KINDS = {'linear_attention': 'mamba2', 'full_attention': 'attention'}
MLPS = {'mlp': 'mlp', 'moe': 'experts'}
LAYERS = 'layers_block_type'
PATTERN = 'hybrid_override_pattern'
LETTERS = dict(zip('M*-E', (*KINDS, *MLPS), strict=True))
OLDER = {  # other names of keys, and of blocks
  'layer_types': LAYERS,
  'mamba_n_groups': 'n_groups',
  'mamba_d_conv': 'conv_kernel',
  'mamba_dt_min': 'time_step_min',
  'mamba': 'linear_attention',
  'attention': 'full_attention',
}
NEEDED = {
  'mamba_hidden_act': 'silu',
  'mlp_hidden_act': 'relu2',
  'attention_bias': False,
  'use_bias': False,
  'use_conv_bias': True,
  'num_nextn_predict_layers': 0,
}
ABSENT = ('sliding_window', 'moe_latent_size')
FIELDS = (
  fields.Field('hidden_size', 'model.width', 4096),
  fields.Field('layer_norm_epsilon', 'model.norm_epsilon', 1e-5),
)
MAMBA = (
  fields.Field('mamba_num_heads', 'heads', 128),
  fields.Field('mamba_head_dim', 'value_width', 64),
  fields.Field('ssm_state_size', 'key_width', 128),
  fields.Field('n_groups', 'groups', 8),
  fields.Field('conv_kernel', 'convolution', 4, most=keys_lib.TAPS),
  fields.Field('time_step_min', 'min_step', 0.001),
  fields.Field('layer_norm_epsilon', 'norm_epsilon', 1e-5),
)
ATTENTION = (
  fields.Field('num_attention_heads', 'heads', 32),
  fields.Field('head_dim', 'head_width', 128),
)
ROUTING = {  # keys of options of experts, and their values if not given
  'count': ('n_routed_experts', 8),
  'per_token': ('num_experts_per_tok', 2),
  'normalized': ('norm_topk_prob', True),
  'groups': ('n_group', 1),
  'groups_per_token': ('topk_group', 1),
  'gate_scale': ('routed_scaling_factor', 1.0),
}
MATRICES = {'up': 'up_proj', 'down': 'down_proj'}  # of an MLP
BLOCK = re.compile(r'(\w+\.layers)\.(\d+)\.(\d)\.')


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  older = {OLDER[k]: x for k, x in keys.values.items() if k in OLDER}
  keys = dataclasses.replace(keys, values=keys.values | older)
  fields.need(keys, NEEDED)
  for name in ABSENT:
    keys.absent(name)
  own = fields.options(keys, FIELDS)
  cells, mlps = _layers(keys)
  of_cell = {}
  if 'mamba2' in cells:
    of_cell['mamba2'] = fields.options(keys, MAMBA) | {'norm_scale': True}
  if 'attention' in cells:
    of_cell['attention'] = fields.options(keys, ATTENTION) | {
      'kv_heads': keys.whole('num_key_value_heads', 8),
      'rotary': 0.0,
    }
  return {
    **own,
    **fields.head(keys, tied=False),
    **fields.patterned(cells, of_cell, mlps),
    **_mlps(keys, {*mlps}),
    'model.norm_scale': True,
  }


def _layers(keys):
  """Returns the cell of each layer of ours, and what follows it."""
  known = (*KINDS, *MLPS)
  given = keys.items(LAYERS, keys_lib.LAYERS)
  if given is None:
    pattern = keys.text(PATTERN, 'ME*-')
    if not pattern or {*pattern} - {*LETTERS} or len(pattern) > keys_lib.LAYERS:
      keys.refuse(
        PATTERN, pattern, f'only letters of {[*LETTERS]} are supported'
      )
    given = [LETTERS[letter] for letter in pattern]
  kinds = [OLDER.get(x, x) if isinstance(x, str) else x for x in given]
  keys = dataclasses.replace(keys, values={LAYERS: kinds})
  kinds = keys.names(LAYERS, known)
  cells, mlps = [], []
  for n, kind in enumerate(kinds):
    if kind in KINDS:
      cells.append(KINDS[kind])
      mlps.append('none')
    elif not mlps or mlps[-1] != 'none':
      keys.refuse(LAYERS, kind, f'block {n} needs one of {[*KINDS]} before it')
    else:
      mlps[-1] = MLPS[kind]
  if not cells:
    keys.refuse(LAYERS, kinds, 'give one or more')
  return cells, mlps


def _mlps(keys, kinds):
  """Returns the options of MLPs and experts, of the kinds that there are."""
  own: dict[str, Any] = {}
  inner = keys.whole('intermediate_size', 21504)
  if 'mlp' in kinds or 'experts' in kinds:
    own = {'model.mlp': 'squared_relu', 'model.mlp_width': inner}
  if 'experts' not in kinds:
    return own | {
      'model.biases': 'mlp' in kinds and keys.flag('mlp_bias', False)
    }
  fields.need(keys, {'mlp_bias': False})
  width = keys.whole('moe_intermediate_size', 7688)
  shared = keys.whole('moe_shared_expert_intermediate_size', 7688)
  own |= kimi_linear.routing(keys, ROUTING) | {
    'model.mlp_width': width,
    'model.experts.shared_width': shared,
    'model.experts.shared_gate': False,
  }
  if 'mlp' in kinds:
    own['model.experts.dense_width'] = inner
  return own


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model = config.model
  kinds, own = fields.describe_cells(
    config,
    KINDS,
    {
      'mamba2': lambda x: fields.describe(x.cell, MAMBA),
      'attention': lambda x: (
        fields.describe(x.cell, ATTENTION)
        | {'num_key_value_heads': x.cell.groups}
      ),
    },
  )
  theirs = {ours: name for name, ours in MLPS.items()}
  blocks = [
    block
    for kind, mlp in zip(kinds, _kinds(model), strict=True)
    for block in (kind, theirs.get(mlp))
    if block
  ]
  return {
    **own,
    **NEEDED,
    **dict.fromkeys(ABSENT),
    **fields.describe(config, FIELDS),
    **_described_mlps(model),
    LAYERS: blocks,
    'num_hidden_layers': len(blocks),
  }


def _kinds(model):
  """Returns what follows the cell of each layer, as model.mlps has it."""
  if model.mlps:
    return model.mlps * model.periods
  kind = 'experts' if model.experts.count else 'mlp'
  return (kind if model.mlp_width else 'none',) * model.layers


def _described_mlps(model):
  experts = model.experts
  if not experts.count:
    return {'intermediate_size': model.mlp_width or 1, 'mlp_bias': model.biases}
  return {
    'intermediate_size': experts.dense_width or 1,
    'mlp_bias': False,
    'moe_intermediate_size': model.mlp_width,
    'moe_shared_expert_intermediate_size': experts.shared_width,
    **kimi_linear.described_routing(experts, ROUTING),
  }


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Row]:
  """Returns the table of a model's tensors; `vocabulary` is its size."""
  kinds = _kinds(config.model)
  counts = [1 + (kind != 'none') for kind in kinds]
  first = [0, *itertools.accumulate(counts)]

  def number(match):
    layer = first[int(match[2])] + int(match[3])
    return f'{match[1]}.{layer}.'

  rows = table.stack(config, vocabulary, NAMES, layer)
  return [row.named(lambda x: BLOCK.sub(number, x, count=1)) for row in rows]


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config.

  Their names begin with the number of their block in the layer, 0 or 1.
  """
  model = config.model
  if model.cell == 'attention':
    mixer = llama.attention(config)
  else:
    cell: mamba2_cell.Config = config.cell
    assert cell.norm == 'after'
    mixer = mamba2.mixer(config)
  norm = table.scale('norm', 'cell_norm', model.width)
  rows = [
    _of_block(0, x) for x in (norm, *table.within('mixer', 'cell', mixer))
  ]
  if not model.mlp_width:
    return rows
  norm = table.scale('norm', 'mlp_norm', model.width)
  return rows + [_of_block(1, x) for x in (norm, *_mlp_rows(model))]


def _of_block(number, row):
  return row.named(lambda name: f'{number}.{name}')


def _mlp_rows(model):
  experts = model.experts
  if not experts.count:
    return table.within('mixer', 'mlp', _plain(model.mlp_width, model))
  bias = table.Tensor(
    'gate.e_score_correction_bias', (experts.count,), 'router_bias'
  )
  shared = _plain(experts.shared_width, model)
  own = [bias, *table.within('shared_experts', 'shared', shared)]
  routed = mixtral.routed(model, 'mixer', MATRICES, newer='mixer')
  return [*routed, *table.within('mixer', 'experts', own)]


def _plain(inner, model):
  """Returns the tensors of an MLP without a gate."""
  D = model.width
  return [
    *table.dense('up_proj', 'up', (inner, D), model.biases),
    *table.dense('down_proj', 'down', (D, inner), model.biases),
  ]
