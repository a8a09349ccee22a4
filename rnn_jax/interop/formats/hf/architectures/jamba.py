"""Jamba: Mamba and attention, followed by an MLP or by experts.

    x = x + cell(rms_norm(x) * s)        x = x + mlp(rms_norm(x) * t)

Every attn_layer_period layers one has attention, the others Mamba, in which r,
k and q are normed; every expert_layer_period layers one has experts, the others
an MLP of the same width. Gates of experts are the router's probabilities.
Attention has no positions. Folders of transformers with
`save_original_format=False` join the experts' tensors, and are read too.
Source: Lieber et al., "Jamba: A Hybrid Transformer-Mamba Language Model", 2024.
"""

from collections.abc import Sequence
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba as mamba_cell
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf.architectures import bamba
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mamba
from rnn_jax.interop.formats.hf.architectures import mixtral

MODEL_TYPES = {'jamba': 'JambaForCausalLM'}
CELLS = ('mamba', 'attention')
NAMES = bamba.NAMES
MLP = 'feed_forward'
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 32, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 4096),
  fields.Field('intermediate_size', 'model.mlp_width', 14336),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', 1e-6),
)
MAMBA = (
  fields.Field('mamba_d_state', 'key_width', 16),
  fields.Field('mamba_d_conv', 'convolution', 4, most=keys_lib.TAPS),
  fields.Field('mamba_conv_bias', 'convolution_bias', True),
)
HEADS = fields.Field('num_attention_heads', 'heads', 32)
NEEDED = {'mamba_proj_bias': False}
NORMS = {'dt_layernorm': 'dt', 'b_layernorm': 'key', 'c_layernorm': 'query'}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  fields.need(keys, NEEDED)
  own = fields.options(keys, FIELDS)
  width, layers = own['model.width'], own['model.layers']
  attends = _every(keys, 'attn_layer', (8, 4), layers)
  cells = ['attention' if x else 'mamba' for x in attends]
  routed, experts = _experts(keys, layers)
  of_cell = {}
  if 'mamba' in cells:
    of_cell['mamba'] = _mixer(keys, width, own['model.norm_epsilon'])
  if 'attention' in cells:
    of_cell['attention'] = _attention(keys, width)
  mlps = ['experts' if x else 'mlp' for x in routed]
  if any(routed) and not all(routed):
    experts['model.experts.dense_width'] = own['model.mlp_width']
  return {
    **own,
    **experts,
    **fields.head(keys, tied=False),
    **fields.patterned(cells, of_cell, mlps),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
  }


def _every(keys, name, defaults, layers):
  """Returns whether each layer is one of every so many."""
  period = keys.whole(f'{name}_period', defaults[0])
  offset = keys.whole(f'{name}_offset', defaults[1], 0, period - 1)
  return [n % period == offset for n in range(layers)]


def _mixer(keys, width, epsilon):
  name = 'mamba_dt_rank'
  rank = mamba_cell.Config().of_width(width).rank
  if keys.get(name) != 'auto':
    rank = keys.whole(name, rank)
  return fields.options(keys, MAMBA) | {
    'inner_width': keys.whole('mamba_expand', 2) * width,
    'rank': rank,
    'selection_norm': True,
    'norm_epsilon': epsilon,
  }


def _attention(keys, width):
  heads = HEADS.read(keys)
  return {
    'heads': heads,
    'head_width': bamba.head_width(keys, width, heads),
    'kv_heads': keys.whole('num_key_value_heads', 8),
    'rotary': 0.0,
  }


def _experts(keys, layers):
  """Returns whether each layer has experts, and their options."""
  count = keys.whole('num_experts', 16, most=keys_lib.EXPERTS)
  routed = _every(keys, 'expert_layer', (2, 1), layers)
  if count == 1 or not any(routed):
    return [False] * layers, {}
  chosen = keys.whole('num_experts_per_tok', 2)
  return routed, {
    'model.experts.count': count,
    'model.experts.per_token': chosen,
    'model.experts.normalized': chosen == 1,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model = config.model
  kinds, own = fields.describe_cells(
    config,
    {name: name for name in CELLS},
    {'mamba': _described_mixer, 'attention': _described_attention},
  )
  routed = ['experts' if model.experts.count else 'mlp'] * model.layers
  if model.mlps:
    routed = [*model.mlps] * model.periods
  return {
    **own,
    **NEEDED,
    **fields.describe(config, FIELDS),
    **_described_every('attn_layer', [x == 'attention' for x in kinds]),
    **_described_every('expert_layer', [x == 'experts' for x in routed]),
    'num_experts': model.experts.count or 1,
    'num_experts_per_tok': model.experts.per_token,
    'hidden_act': 'silu',
  }


def _described_every(name: str, chosen: Sequence[bool]) -> dict[str, int]:
  """Returns the keys of `_every`."""
  places = [n for n, x in enumerate(chosen) if x]
  if not places:  # beyond the last layer
    places = [len(chosen)]
  period = places[1] - places[0] if len(places) > 1 else len(chosen) + 1
  return {f'{name}_period': period, f'{name}_offset': places[0]}


def _described_mixer(config):
  cell: mamba_cell.Config = config.cell
  return {
    **fields.describe(cell, MAMBA),
    'mamba_expand': cell.inner_width // config.model.width,
    'mamba_dt_rank': cell.rank,
  }


def _described_attention(config):
  return fields.describe(config.cell, (HEADS,)) | {
    'num_key_value_heads': config.cell.groups
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  model = config.model
  norms = [
    table.scale('input_layernorm', 'cell_norm', model.width),
    table.scale('pre_ff_layernorm', 'mlp_norm', model.width),
  ]
  if model.cell == 'attention':
    rows = table.within('self_attn', 'cell', llama.attention(config))
  else:
    rows = table.within('mamba', 'cell', _mixer_rows(config))
  if not model.experts.count:
    mlp = table.within(MLP, 'mlp', llama.mlp(model))
  else:
    mlp = mixtral.routed(model, MLP, mixtral.QWEN, newer=MLP, router='router')
  return norms + rows + mlp


def _mixer_rows(config):
  cell: mamba_cell.Config = config.cell
  widths = {'dt': cell.rank, 'key': cell.key_width, 'query': cell.key_width}
  norms = [
    table.scale(theirs, f'{ours}_norm', widths[ours])
    for theirs, ours in NORMS.items()
  ]
  return mamba.mixer(config) + norms
