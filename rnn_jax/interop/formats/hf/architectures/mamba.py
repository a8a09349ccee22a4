"""Mamba of transformers: x = x + mamba(rms_norm(x) * s), without an MLP.

Their fused projection has the x of all channels and then their z, ours both of
a channel side by side. Their first tap is of the oldest input, ours of the
newest. Ours adds up residuals in float32, whatever `residual_in_fp32` says.
Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State
Spaces", 2023.
"""

from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf.architectures import mamba2

MODEL_TYPES = {'mamba': 'MambaForCausalLM'}
CELLS = ('mamba',)
NAMES = mamba2.NAMES
NEEDED = {'use_bias': False}
FIELDS = (
  fields.Field('num_hidden_layers', 'model.layers', most=keys_lib.LAYERS),
  fields.Field('hidden_size', 'model.width'),
  fields.Field('layer_norm_epsilon', 'model.norm_epsilon', 1e-5),
  fields.Field('state_size', 'cell.key_width', 16),
  fields.Field('conv_kernel', 'cell.convolution', 4, most=keys_lib.TAPS),
  fields.Field('use_conv_bias', 'cell.convolution_bias', True),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')
  width = keys.whole('hidden_size')
  return {
    **fields.options(keys, FIELDS),
    **fields.head(keys, tied=True),
    'model.cell': 'mamba',
    'model.norm_scale': True,
    'cell.inner_width': keys.whole('expand', 2) * width,
    'cell.rank': _rank(keys, width),
  }


def _rank(keys, width):
  """Returns R, for which 'auto' is what ours is without one."""
  default = mamba.Config().of_width(width).rank
  if keys.get('time_step_rank') == 'auto':
    return default
  return keys.whole('time_step_rank', default)


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  cell = config.cell
  expand = cell.inner_width / config.model.width
  return {
    **NEEDED,
    **fields.describe(config, FIELDS),
    'intermediate_size': cell.inner_width,
    # Another expand, which they don't have, is refused.
    'expand': int(expand) if expand.is_integer() else expand,
    'time_step_rank': cell.rank,
    'hidden_act': 'silu',
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return mamba2.mixed(config, mixer(config))


def mixer(config: config_lib.Config) -> list[table.Tensor]:
  """Returns the tensors of a Mamba."""
  cell: mamba.Config = config.cell
  width, inner, R = config.model.width, cell.inner_width, cell.rank
  chosen = R + 2 * cell.key_width
  rows = [
    *table.dense('in_proj', 'projection', (2 * inner, width), view=_halves),
    *table.dense('x_proj', 'selection', (chosen, inner)),
    *table.dense('dt_proj', 'dt', (inner, R)),
    *table.dense('out_proj', 'output', (width, inner)),
    table.Tensor('conv1d.weight', (inner, 1, cell.convolution), 'taps', _taps),
    table.Tensor('dt_proj.bias', (inner,), 'dt_bias'),
    table.Tensor('A_log', (inner, cell.key_width), 'log_rate'),
    table.Tensor('D', (inner,), 'skip'),
  ]
  if cell.convolution_bias:
    rows.append(table.Tensor('conv1d.bias', (inner,), 'taps_bias'))
  return rows


def _halves(x):
  """Returns the rows of x and of z, from columns of both side by side."""
  return [x.T[::2], x.T[1::2]]


def _taps(x):
  return x[::-1].T
