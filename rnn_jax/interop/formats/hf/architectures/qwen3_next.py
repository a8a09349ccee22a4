"""Qwen3-Next: Gated DeltaNets and gated attention, each followed by experts.

    x = x + cell(rms_norm(x) * (1 + s))  x = x + experts(rms_norm(x) * (1 + t))

layer_types says which cell a layer has. Scales of norms are stored less one in
both, those of queries and keys too; that of a DeltaNet's outputs isn't. Without
num_experts a layer has an MLP. Theirs projects a key head's q, k, v and g by
one matrix, b and a by another, ours all by one; their convolution has all
queries, all keys and all values in turn, ours head by head, and its first tap
is of the oldest input, ours of the newest. Tensors of later tokens' heads,
'mtp.', are left out, as transformers does.
Source: Qwen Team, "Qwen3-Next", 2025; Yang et al., "Gated Delta Networks:
Improving Mamba2 with Delta Rule", 2024.
"""

from collections.abc import Callable
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import gated_deltanet
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = {'qwen3_next': 'Qwen3NextForCausalLM'}
NAMES = llama.NAMES
CELLS = ('gated_deltanet', 'attention')
KINDS = {'linear_attention': 'gated_deltanet', 'full_attention': 'attention'}
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width'),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', 1e-6),
)
LINEAR = (
  fields.Field('linear_num_key_heads', 'heads', 16),
  fields.Field('linear_key_head_dim', 'key_width', 128),
  fields.Field('linear_value_head_dim', 'value_width', 128),
  fields.Field('linear_conv_kernel_dim', 'convolution', 4, most=keys_lib.TAPS),
)
ATTENTION = (
  fields.Field('num_attention_heads', 'heads', 16),
  fields.Field('head_dim', 'head_width', 256),
  fields.Field('attention_bias', 'biases', False),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  own = fields.options(keys, FIELDS)
  epsilon = {'norm_epsilon': own['model.norm_epsilon']}
  of_cell = {
    'gated_deltanet': _linear(keys) | epsilon,
    'attention': _attention(keys) | epsilon,
  }
  return {
    **own,
    **fields.head(keys, tied=False),
    **fields.patterned(_cells(keys, own['model.layers']), of_cell),
    **_mlp(keys),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.norm_plus_one': True,
  }


def _cells(keys, layers):
  """Returns the cell of each layer."""
  linear, full = KINDS

  def default():
    every = keys.whole('full_attention_interval', 4)
    return [linear if (n + 1) % every else full for n in range(layers)]

  kinds = fields.by_layer(keys, 'layer_types', KINDS, layers, default)
  return [KINDS[kind] for kind in kinds]


def _linear(keys):
  own = fields.options(keys, LINEAR)
  name, heads = 'linear_num_value_heads', own['heads']
  values = keys.whole(name, 32)
  if values % heads:
    keys.refuse(name, values, f'linear_num_key_heads={heads} must divide it')
  return own | {
    'value_heads': values if values > heads else 0,
    'norm_scale': True,
  }


def _attention(keys):
  own = fields.options(keys, ATTENTION)
  return own | {
    'kv_heads': keys.whole('num_key_value_heads', 2),
    'rotary': rotary.base(keys, (*rotary.SCALINGS,)),
    'rotary_scaling': rotary.scaling(keys),
    'rotary_width': rotary.rotated(keys, own['head_width'], 0.25),
    'qk_norm': True,
    'norm_plus_one': True,
    'output_gate': True,
  }


def _mlp(keys):
  """Returns the options of experts, or of an MLP if there are none."""
  count = keys.whole('num_experts', 512, 0, keys_lib.EXPERTS)
  if not count:
    return {'model.mlp_width': keys.whole('intermediate_size', 5632)}
  if count < 2:
    keys.refuse('num_experts', count, 'give 2 or more, or 0 for an MLP')
  shared = keys.whole('shared_expert_intermediate_size', 512)
  return mixtral.of_qwen(keys, per_token=10, normalized=True) | {
    'model.mlp_width': keys.whole('moe_intermediate_size', 512),
    'model.experts.count': count,
    'model.experts.shared_width': shared,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  kinds, own = fields.describe_cells(
    config,
    KINDS,
    {'gated_deltanet': _described_linear, 'attention': _described_attention},
  )
  return {
    **own,
    **fields.describe(config, FIELDS),
    **_described_mlp(config.model),
    'layer_types': kinds,
    'hidden_act': 'silu',
  }


def _described_linear(config):
  values = {'linear_num_value_heads': config.cell.memories}
  return fields.describe(config.cell, LINEAR) | values


def _described_attention(config):
  return fields.describe(config.cell, ATTENTION) | {
    'num_key_value_heads': config.cell.groups,
    'rope_parameters': rotary.described_share(config.cell),
  }


def _described_mlp(model):
  if not model.experts.count:
    return {'num_experts': 0, 'intermediate_size': model.mlp_width}
  return mixtral.described(model.experts) | {
    'num_experts': model.experts.count,
    'moe_intermediate_size': model.mlp_width,
    'shared_expert_intermediate_size': model.experts.shared_width,
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return with_projections(config, _projections)


def with_projections(
  config: config_lib.Config,
  projections: Callable[[gated_deltanet.Config, int], list[table.Tensor]],
) -> list[table.Row]:
  """Returns the tensors of a layer.

  Args:
    config: of a model with such layers only.
    projections: returns those of our projection in a DeltaNet, from its options
      and the width of its inputs.
  """
  width = config.model.width
  if config.model.cell == 'attention':
    rows = llama.attention_block(config)
  else:
    own = projections(config.cell, width) + _linear_rows(config.cell, width)
    rows = llama.norms(width) + table.within('linear_attn', 'cell', own)
  if not config.model.experts.count:
    return rows + table.within('mlp', 'mlp', llama.mlp(config.model))
  shared = llama.gated_mlp(config.model.experts.shared_width, width)
  shared = [
    *table.within('shared_expert', 'shared', shared),
    *table.dense('shared_expert_gate', 'shared_gate', (1, width)),
  ]
  return [
    *rows,
    *mixtral.routed(config.model, 'mlp', mixtral.QWEN),
    *table.within('mlp', 'experts', shared),
  ]


def _projections(cell: gated_deltanet.Config, width):
  H = cell.heads
  before = sum(cell.widths[part] for part in delta.Cell.mixed)
  gate = cell.widths['output_gate']

  def project(x):
    by_head = x.T.reshape(H, -1, *x.shape[:-1])
    return [y for own in by_head for y in (own[:before], own[-gate:])]

  def rates(x):
    return x.T.reshape(H, -1, *x.shape[:-1])[:, before:-gate]

  qkvz, ba = (H * (before + gate), width), (2 * cell.memories, width)
  return [
    *table.dense('in_proj_qkvz', 'projection', qkvz, view=project),
    *table.dense('in_proj_ba', 'projection', ba, view=rates),
  ]


def _linear_rows(cell, width):
  H, inner = cell.heads, cell.memories * cell.value_width
  mixed = {name: cell.widths[name] for name in delta.Cell.mixed}
  taps = H * sum(mixed.values()), 1, cell.convolution

  def convolve(x):
    return [table.head_view(mixed, part, H, step=-1)(x) for part in mixed]

  return [
    *table.dense('out_proj', 'output', (width, inner)),
    table.Tensor('conv1d.weight', taps, 'taps', convolve),
    table.Tensor('A_log', (cell.memories,), 'log_rate'),
    table.Tensor('dt_bias', (cell.memories,), 'step_bias'),
    table.scale('norm', 'norm', cell.value_width),
  ]
