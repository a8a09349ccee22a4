"""Granite 4: Mamba-2 and attention, followed by an MLP or by experts.

    x = c embedding                      x = x + r cell(rms_norm(x) * s)
    logits = E rms_norm(x) * u / l       x = x + r mlp(rms_norm(x) * t)

with the multipliers c, r and l, and one of attention's scores. layer_types says
which cell a layer has. Without num_local_experts a layer has an MLP; with them,
experts whose gates sum to 1, and one of the MLP's width that all tokens run.
The matrices of both halves of an MLP are one tensor, as are those of all
experts of a layer. Attention has rotary positions only if
position_embedding_type is 'rope'. transformers renames the tensors of experts
with `save_original_format=False`; these are read too.
Source: IBM, "Granite 4.0", 2025.
"""

from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import attention as attention_cell
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import bamba
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = {'granitemoehybrid': 'GraniteMoeHybridForCausalLM'}
CELLS = bamba.CELLS
NAMES = llama.NAMES
KINDS = {'linear_attention': 'mamba2', 'full_attention': 'attention'}
OLDER = {'mamba': 'mamba2', 'attention': 'attention'}  # names of the same
LAYERS = 'layer_types'
SCALE = 'attention_multiplier'
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 32, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 4096),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', 1e-6),
  fields.Field('embedding_multiplier', 'model.embedding_multiplier', 1.0),
  fields.Field('residual_multiplier', 'model.residual_multiplier', 1.0),
)
ATTENTION = (
  fields.Field('num_attention_heads', 'heads', 32),
  fields.Field('attention_bias', 'biases', False),
)
POSITIONS = 'position_embedding_type'
ROTATED = 'rope'
MLP = 'shared_mlp'
EXPERTS = 'block_sparse_moe'
NEWER = {  # names of the tensors of experts
  'input_linear.weight': 'experts.gate_up_proj',
  'output_linear.weight': 'experts.down_proj',
  'router.layer.weight': 'router.weight',
}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  own = fields.options(keys, FIELDS)
  width, epsilon = own['model.width'], own['model.norm_epsilon']
  cells = _cells(keys, own['model.layers'])
  of_cell = {}
  if 'mamba2' in cells:
    of_cell['mamba2'] = bamba.mixer_options(keys, width, epsilon)
  if 'attention' in cells:
    of_cell['attention'] = _attention(keys, width)
  scaling = keys.number('logits_scaling', 1.0, rotary.POSITIVE)
  return {
    **own,
    **fields.head(keys, tied=False),
    **fields.patterned(cells, of_cell),
    **_mlp(keys),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.head_multiplier': 1 / scaling,
  }


def _cells(keys, layers):
  """Returns the cell of each layer."""
  names = KINDS | OLDER
  kinds = fields.by_layer(
    keys, LAYERS, names, layers, lambda: [*KINDS][:1] * layers
  )
  return [names[kind] for kind in kinds]


def _attention(keys, width):
  own = fields.options(keys, ATTENTION)
  K = bamba.head_width(keys, width, own['heads'])
  scale = keys.number(SCALE, 1.0, rotary.POSITIVE)
  rotated = keys.get(POSITIONS) == ROTATED
  return own | {
    'head_width': K,
    'kv_heads': keys.whole('num_key_value_heads', own['heads']),
    'score_scale': 0.0 if scale == K**-0.5 else scale,
    'rotary': rotary.base(keys, (*rotary.SCALINGS,)) if rotated else 0.0,
    'rotary_scaling': rotary.scaling(keys) if rotated else (),
  }


def _mlp(keys):
  """Returns the options of experts, or of an MLP if there are none."""
  shared = keys.whole('shared_intermediate_size', 1024)
  name = 'num_local_experts'
  count = keys.whole(name, 8, 0, keys_lib.EXPERTS)
  if not count:
    return {'model.mlp_width': shared}
  if count < 2:
    keys.refuse(name, count, 'give 2 or more, or 0 for an MLP')
  return {
    'model.mlp_width': keys.whole('intermediate_size', 11008),
    'model.experts.count': count,
    'model.experts.per_token': mixtral.choice(keys),
    'model.experts.normalized': True,
    'model.experts.shared_width': shared,
    'model.experts.shared_gate': False,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model = config.model
  kinds, own = fields.describe_cells(
    config,
    KINDS,
    {'mamba2': bamba.described_mixer, 'attention': _described_attention},
  )
  return {
    **own,
    **fields.describe(config, FIELDS),
    **_described_mlp(model),
    LAYERS: kinds,
    'logits_scaling': fields.inverse(model.head_multiplier),
    'hidden_act': 'silu',
  }


def _described_attention(config):
  cell: attention_cell.Config = config.cell
  own = fields.describe(cell, ATTENTION) | {
    'num_key_value_heads': cell.groups,
    SCALE: cell.score_scale or cell.head_width**-0.5,
    POSITIONS: ROTATED if cell.rotary else None,
  }
  if cell.rotary:
    own['rope_parameters'] = rotary.described(cell.rotary, cell.rotary_scaling)
  return own


def _described_mlp(model):
  experts = model.experts
  if not experts.count:
    return {
      'num_local_experts': 0,
      'shared_intermediate_size': model.mlp_width,
    }
  return {
    'num_local_experts': experts.count,
    'num_experts_per_tok': experts.per_token,
    'intermediate_size': model.mlp_width,
    'shared_intermediate_size': experts.shared_width,
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  model = config.model
  rows = [*bamba.mixed(config, 'post_attention_layernorm')]
  if not model.experts.count:
    return rows + table.within(MLP, 'mlp', _halves(model.mlp_width, model))
  routed = table.within(EXPERTS, 'experts', _experts(model))
  names = {f'{EXPERTS}.{name}': f'{EXPERTS}.{NEWER[name]}' for name in NEWER}
  newer = [
    row
    for x in routed
    if x.name in names
    for row in table.renamed([x], x.name, names[x.name])
  ]
  shared = _halves(model.experts.shared_width, model)
  return [
    *rows,
    *routed,
    *newer,
    *table.within(MLP, 'experts.shared', shared),
  ]


def _halves(inner, model):
  """Returns the tensors of an MLP, the first two of which are joined."""
  D = model.width
  names = {'gate': 'gate.weight', 'up': 'up.weight'}
  return [
    *table.dense('gate', 'gate', (inner, D)),
    *table.dense('up', 'up', (inner, D)),
    *table.dense('output_linear', 'down', (D, inner)),
    table.Joined(
      'input_linear.weight', (2 * inner, D), [*names.values()], written=True
    ),
  ]


def _experts(model):
  """Returns the tensors of the router and of all experts."""
  E, D, F = model.experts.count, model.width, model.mlp_width
  parts = {
    (n, leaf): f'{n}.{leaf}' for n in range(E) for leaf in ('gate', 'up')
  }
  return [
    *table.dense('router.layer', 'router', (E, D)),
    *(
      table.Tensor(name, (F, D), f'{leaf}.kernel', lambda x, n=n: x[n].T)
      for (n, leaf), name in parts.items()
    ),
    table.Joined(
      'input_linear.weight', (E, 2 * F, D), [*parts.values()], written=True
    ),
    table.Tensor(
      'output_linear.weight', (E, D, F), 'down.kernel', table.low_rank
    ),
  ]
