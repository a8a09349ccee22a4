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

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import gated_deltanet
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import gated_deltanet as fla
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = ('qwen3_next',)
CELLS = ('gated_deltanet', 'attention')
KINDS = {'linear_attention': 'gated_deltanet', 'full_attention': 'attention'}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  epsilon = keys.number('rms_norm_eps', 1e-6)
  tied = keys.flag('tie_word_embeddings', False)
  own = {'gated_deltanet': _linear(keys), 'attention': _attention(keys)}
  for one in own.values():
    one['norm_epsilon'] = epsilon
  return {
    **table.patterned(_cells(keys), own),
    **_mlp(keys),
    'model.width': keys.whole('hidden_size'),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
    'model.norm_plus_one': True,
    'model.norm_epsilon': epsilon,
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
  }


def _cells(keys):
  """Returns the cell of each layer."""
  layers = keys.whole('num_hidden_layers', most=keys_lib.LAYERS)
  kinds = keys.names('layer_types', [*KINDS])
  if kinds is None:
    every = keys.whole('full_attention_interval', 4)
    linear, full = KINDS
    kinds = [linear if (n + 1) % every else full for n in range(layers)]
  if len(kinds) != layers:
    keys.refuse('num_hidden_layers', layers, f'layer_types has {len(kinds)}')
  return [KINDS[kind] for kind in kinds]


def _linear(keys):
  heads = keys.whole('linear_num_key_heads', 16)
  name = 'linear_num_value_heads'
  values = keys.whole(name, 32)
  if values % heads:
    keys.refuse(name, values, f'linear_num_key_heads={heads} must divide it')
  return {
    'heads': heads,
    'value_heads': values if values > heads else 0,
    'key_width': keys.whole('linear_key_head_dim', 128),
    'value_width': keys.whole('linear_value_head_dim', 128),
    'convolution': keys.whole('linear_conv_kernel_dim', 4, most=keys_lib.TAPS),
    'norm_scale': True,
  }


def _attention(keys):
  head = keys.whole('head_dim', 256)
  return {
    'heads': keys.whole('num_attention_heads', 16),
    'kv_heads': keys.whole('num_key_value_heads', 2),
    'head_width': head,
    'rotary': rotary.base(keys, (*rotary.SCALINGS,)),
    'rotary_scaling': rotary.scaling(keys),
    'rotary_width': rotary.rotated(keys, head, 0.25),
    'qk_norm': True,
    'norm_plus_one': True,
    'output_gate': True,
    'biases': keys.flag('attention_bias', False),
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
  model = config.model
  describe_cells = {
    'gated_deltanet': _described_linear,
    'attention': _described_attention,
  }
  return table.describe_layers(config, KINDS, describe_cells) | {
    'architectures': ['Qwen3NextForCausalLM'],
    'num_hidden_layers': model.layers,
    'hidden_size': model.width,
    'hidden_act': 'silu',
    'rms_norm_eps': model.norm_epsilon or 1e-6,
    **_described_mlp(model),
  }


def _described_linear(cell):
  return {
    'linear_num_key_heads': cell.heads,
    'linear_num_value_heads': cell.memories,
    'linear_key_head_dim': cell.key_width,
    'linear_value_head_dim': cell.value_width,
    'linear_conv_kernel_dim': cell.convolution,
  }


def _described_attention(cell):
  return {
    'num_attention_heads': cell.heads,
    'num_key_value_heads': cell.groups,
    'head_dim': cell.head_width,
    'attention_bias': cell.biases,
    'rope_parameters': rotary.described_share(cell),
  }


def _described_mlp(model):
  if not model.experts.count:
    return {'num_experts': 0, 'intermediate_size': model.mlp_width}
  return mixtral.described(model.experts) | {
    'num_experts': model.experts.count,
    'moe_intermediate_size': model.mlp_width,
    'shared_expert_intermediate_size': model.experts.shared_width,
  }


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  model = config.model
  listed = table.ends(model, vocabulary, ('model.embed_tokens', 'model.norm'))
  for n, (ours, place, cell) in enumerate(table.layers(model)):
    theirs, own = f'model.layers.{n}', table.of_cell(config, cell)
    if cell == 'attention':
      listed += llama.without_mlp(own, theirs, ours, place)
    else:
      listed += [
        table.scale(
          f'{theirs}.{norm}_layernorm', f'{ours}.{leaf}', model.width, place
        )
        for norm, leaf in NORMS.items()
      ]
      listed += _of_linear(
        own.cell, model.width, f'{theirs}.linear_attn', f'{ours}.cell', place
      )
    listed += _of_mlp(model, f'{theirs}.mlp', ours, place)
  return listed


def joined(config: config_lib.Config) -> list[table.Joined]:
  """Returns the tensors of all of a layer's experts; see table.py."""
  if not config.model.experts.count:
    return []
  prefixes = [f'model.layers.{n}.mlp' for n in range(config.model.layers)]
  return [
    one
    for prefix in prefixes
    for one in mixtral.joined_experts(
      config.model, prefix, prefix, mixtral.QWEN
    )
  ]


def _of_linear(cell: gated_deltanet.Config, width, theirs, ours, place):
  H, inner = cell.heads, cell.memories * cell.value_width
  mixed = {name: cell.widths[name] for name in delta.Cell.mixed}
  before, gate = sum(mixed.values()), cell.widths['output_gate']

  def project(x):
    by_head = x.T.reshape(H, -1, *x.shape[:-1])
    return [y for own in by_head for y in (own[:before], own[-gate:])]

  def rates(x):
    return x.T.reshape(H, -1, *x.shape[:-1])[:, before:-gate]

  def convolve(x):
    return [fla.head_view(mixed, part, H, step=-1)(x) for part in mixed]

  columns = H * (before + gate), 2 * cell.memories
  dense = (
    table.Dense(
      'in_proj_qkvz', 'projection', (columns[0], width), view=project
    ),
    table.Dense('in_proj_ba', 'projection', (columns[1], width), view=rates),
    table.Dense('out_proj', 'output', (width, inner)),
  )
  taps = H * before, 1, cell.convolution
  rows = (
    ('conv1d.weight', taps, 'taps', convolve),
    ('A_log', (cell.memories,), 'log_rate', np.asarray),
    ('dt_bias', (cell.memories,), 'step_bias', np.asarray),
    ('norm.weight', (cell.value_width,), 'norm.scale', np.asarray),
  )
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]


def _of_mlp(model, theirs, ours, place):
  if not model.experts.count:
    return table.dense(llama.mlp(model), theirs, f'{ours}.mlp', place)
  D, F = model.width, model.experts.shared_width
  shared = (
    table.Dense('shared_expert.gate_proj', 'shared.gate', (F, D)),
    table.Dense('shared_expert.up_proj', 'shared.up', (F, D)),
    table.Dense('shared_expert.down_proj', 'shared.down', (D, F)),
    table.Dense('shared_expert_gate', 'shared_gate', (1, D)),
  )
  return [
    *mixtral.routed(model, theirs, ours, place, mixtral.QWEN),
    *table.dense(shared, theirs, f'{ours}.experts', place),
  ]


NORMS = {'input': 'cell_norm', 'post_attention': 'mlp_norm'}
