"""Jamba: Mamba and attention, with an MLP or with experts.

A layer of Mamba is one without heads of keys, and what follows it is experts if
it has a router. Gates are the router's probabilities. Inside, Mamba is twice as
wide; attention has no positions, and heads divide the width.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import jamba as hf_jamba
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import lfm2
from rnn_jax.interop.gguf.architectures import llama
from rnn_jax.interop.gguf.architectures import mamba
from rnn_jax.interop.gguf.architectures import mamba2

ARCHITECTURES = {'jamba': ('jamba',)}
NUMBERS = mamba2.NUMBERS
NAMES = {
  **llama.ATTENTION,
  **{
    theirs.replace('mixer.', 'mamba.'): name
    for theirs, name in mamba.NAMES.items()
    if theirs.startswith('mixer.')
  },
  'mamba.dt_layernorm': 'ssm_dt_norm',
  'mamba.b_layernorm': 'ssm_b_norm',
  'mamba.c_layernorm': 'ssm_c_norm',
  'pre_ff_layernorm': 'ffn_norm',
  'feed_forward.gate_proj': 'ffn_gate',
  'feed_forward.up_proj': 'ffn_up',
  'feed_forward.down_proj': 'ffn_down',
  'feed_forward.router': llama.ROUTER,
}
FIELDS = (
  *llama.FIELDS,
  llama.WIDTH,
  fields_lib.Field('ssm.conv_kernel', 'mamba_d_conv'),
  fields_lib.Field('ssm.state_size', 'mamba_d_state'),
  fields_lib.Field('ssm.time_step_rank', 'mamba_dt_rank'),
)
EXPERTS = (
  fields_lib.Field('expert_count', 'num_experts', 0),
  fields_lib.Field('expert_used_count', 'num_experts_per_tok', 0),
)


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = fields_lib.read(fields, FIELDS)
  layers = min(own['num_hidden_layers'], keys_lib.LAYERS)
  counts = fields.each(lfm2.KEY_HEADS, layers)
  heads = max(1, own['num_attention_heads'])
  fields.one_of(mamba2.INNER, (mamba.EXPAND * own['hidden_size'],), None)
  routed = [
    f'blk.{n}.{llama.ROUTER}.weight' in file.tensors for n in range(layers)
  ]
  experts = fields_lib.read(fields, EXPERTS)
  return {
    **own,
    **_every(fields, lfm2.KEY_HEADS, 'attn_layer', [n > 0 for n in counts]),
    **_every(fields, 'expert_count', 'expert_layer', routed),
    'num_experts': experts['num_experts'] or 1,
    'num_experts_per_tok': experts['num_experts_per_tok'] or 1,
    'num_key_value_heads': lfm2.one_count(fields, counts, heads),
    'model_type': 'jamba',
    'mamba_expand': mamba.EXPAND,
    'mamba_conv_bias': True,
  }


def _every(fields, name, theirs, chosen):
  """Returns the keys of every so many layers, or refuses another order."""
  places = [n for n, x in enumerate(chosen) if x] or [len(chosen)]
  first, *rest = places
  period = rest[0] - first if rest else len(chosen) + 1
  if [n % period == first for n in range(len(chosen))] != chosen:
    fields.refuse(name, places, 'give layers that are evenly spaced')
  return {f'{theirs}_period': period, f'{theirs}_offset': first}


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  period, offset = theirs['attn_layer_period'], theirs['attn_layer_offset']
  heads, layers = theirs['num_key_value_heads'], theirs['num_hidden_layers']
  routed = theirs['num_experts'] > 1
  return {
    **fields_lib.write(theirs, FIELDS),
    **(fields_lib.write(theirs, EXPERTS) if routed else {}),
    mamba2.INNER: theirs['mamba_expand'] * theirs['hidden_size'],
    lfm2.KEY_HEADS: [
      heads if n % period == offset else 0 for n in range(layers)
    ],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  cell, shapes = config.cell, {}
  if config.model.cell != 'attention':
    shapes['ssm_conv1d.weight'] = cell.inner_width, cell.convolution
  rows = tensors_lib.named(hf_jamba.layer(config), NAMES, shapes)
  routed = config.model.experts.count > 0
  return rows + (tensors_lib.experts(config.model) if routed else [])


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
