"""Bamba: Mamba-2, and attention in the layers of attn_layer_indices.

    x = x + cell(rms_norm(x) * s)        x = x + mlp(rms_norm(x) * t)

Half of the channels of attention's heads are rotated. Mamba-2 is that of
mamba2.py under other names.
Source: IBM, Princeton, CMU and UIUC, "Bamba: Inference-Efficient Hybrid Mamba2
Model", 2024.
"""

from collections.abc import Iterable
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba2 as mamba2_cell
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mamba2

MODEL_TYPES = {'bamba': 'BambaForCausalLM'}
CELLS = ('mamba2', 'attention')
NAMES = table.Names(
  'model.embed_tokens', 'model.final_layernorm', 'model.layers'
)
ATTENDING = 'attn_layer_indices'
EPSILON = 1e-5  # of norms, if not given
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', 32, most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width', 4096),
  fields.Field('intermediate_size', 'model.mlp_width', 14336),
  fields.Field('rms_norm_eps', 'model.norm_epsilon', EPSILON),
  fields.Field('mlp_bias', 'model.biases', False),
)
ATTENTION = (
  fields.Field('num_attention_heads', 'heads', 32),
  fields.Field('attention_bias', 'biases', False),
)
MAMBA = (
  fields.Field('mamba_n_heads', 'heads', 128),
  fields.Field('mamba_n_groups', 'groups', 1),
  fields.Field('mamba_d_state', 'key_width', 256),
  fields.Field('mamba_d_conv', 'convolution', 4, most=keys_lib.TAPS),
)
NEEDED = {'mamba_conv_bias': True, 'mamba_proj_bias': False}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')  # the convolution's too
  own = fields.options(keys, FIELDS)
  width, epsilon = own['model.width'], own['model.norm_epsilon']
  cells = _cells(keys, own['model.layers'])
  of_cell = {}
  if 'mamba2' in cells:
    of_cell['mamba2'] = mixer_options(keys, width, epsilon)
  if 'attention' in cells:
    of_cell['attention'] = _attention(keys, width)
  return {
    **own,
    **fields.head(keys, tied=False),
    **fields.patterned(cells, of_cell),
    'model.mlp': 'swiglu',
    'model.norm_scale': True,
  }


def mixer_options(
  keys: keys_lib.Keys, width: int, epsilon: float
) -> dict[str, Any]:
  """Returns the options of Mamba-2; `epsilon` is that of norms."""
  fields.need(keys, NEEDED)
  mamba2.check_limits(keys)
  own = fields.options(keys, MAMBA)
  inner = keys.whole('mamba_expand', 2) * width
  return own | {
    'value_width': value_width(keys, inner, own['heads']),
    'norm_scale': True,
    'norm_epsilon': epsilon,
  }


def value_width(keys: keys_lib.Keys, inner: int, heads: int) -> int:
  """Returns the channels of a head of Mamba-2, of `inner` of all heads."""
  if inner % heads:
    keys.refuse('mamba_n_heads', heads, f'it must divide {inner}')
  P = inner // heads
  if keys.get('mamba_d_head', 'auto') != 'auto':
    fields.need(keys, {'mamba_d_head': P})
  return P


def _attention(keys, width):
  own = fields.options(keys, ATTENTION)
  head = head_width(keys, width, own['heads'])
  return own | {
    'head_width': head,
    'kv_heads': keys.whole('num_key_value_heads', 8),
    'rotary': rotary.base(keys, (*rotary.SCALINGS,)),
    'rotary_scaling': rotary.scaling(keys),
    'rotary_width': rotary.rotated(keys, head, 0.5),
  }


def head_width(keys: keys_lib.Keys, width: int, heads: int) -> int:
  """Returns the channels of a head of attention, which divide the width."""
  if width % heads:
    keys.refuse('num_attention_heads', heads, f'it must divide {width}')
  return width // heads


def _cells(keys, layers):
  """Returns the cell of each layer."""
  indices = keys.items(ATTENDING, layers) or []
  if any(type(n) is not int or not 0 <= n < layers for n in indices):
    keys.refuse(ATTENDING, indices, f'give numbers from 0 to {layers - 1}')
  return ['attention' if n in indices else 'mamba2' for n in range(layers)]


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  kinds, own = fields.describe_cells(
    config,
    {name: name for name in CELLS},
    {'mamba2': described_mixer, 'attention': _described_attention},
  )
  return {
    **own,
    **fields.describe(config, FIELDS),
    ATTENDING: [n for n, kind in enumerate(kinds) if kind == 'attention'],
    'hidden_act': 'silu',
  }


def described_mixer(config: config_lib.Config) -> dict[str, Any]:
  """Returns the keys of `mixer_options`."""
  cell: mamba2_cell.Config = config.cell
  inner = cell.heads * cell.value_width
  return {
    **NEEDED,
    **fields.describe(cell, MAMBA),
    'mamba_d_head': cell.value_width,
    'mamba_expand': inner // config.model.width,
  }


def _described_attention(config):
  return fields.describe(config.cell, ATTENTION) | {
    'num_key_value_heads': config.cell.groups,
    'rope_parameters': rotary.described_share(config.cell),
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  mlp = table.within('feed_forward', 'mlp', llama.mlp(config.model))
  return [*mixed(config, 'pre_ff_layernorm'), *mlp]


def mixed(config: config_lib.Config, norm: str) -> Iterable[table.Row]:
  """Yields the tensors of a layer's cell and norms.

  Args:
    config: of a model with such layers only.
    norm: the name of that before the MLP.
  """
  yield table.scale('input_layernorm', 'cell_norm', config.model.width)
  yield table.scale(norm, 'mlp_norm', config.model.width)
  if config.model.cell == 'attention':
    yield from table.within('self_attn', 'cell', llama.attention(config))
  else:
    yield from table.within('mamba', 'cell', mamba2.mixer(config))
