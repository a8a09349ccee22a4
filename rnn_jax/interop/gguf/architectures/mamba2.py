"""Mamba-2: rates are stored as -exp(A), heads on an axis of their own.

The norm of outputs is over a group, and has a row of scales for each.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba2 as cells
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import mamba2 as hf_mamba2
from rnn_jax.interop.gguf import architectures
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib

ARCHITECTURES = {'mamba2': ('mamba2',)}
NUMBERS = {'ssm_a': tensors_lib.NEGATIVE_EXP}
NAMES = {
  'norm': 'attn_norm',
  'mixer.in_proj': 'ssm_in',
  'mixer.conv1d': 'ssm_conv1d',
  'mixer.dt_bias': 'ssm_dt.bias',
  'mixer.A_log': 'ssm_a',
  'mixer.D': 'ssm_d',
  'mixer.norm': 'ssm_norm',
  'mixer.out_proj': 'ssm_out',
}
FIELDS = (
  fields_lib.Field('block_count', 'num_hidden_layers'),
  fields_lib.Field('embedding_length', 'hidden_size'),
  fields_lib.Field('ssm.conv_kernel', 'conv_kernel'),
  fields_lib.Field('ssm.state_size', 'state_size'),
  fields_lib.Field(
    'attention.layer_norm_rms_epsilon', 'layer_norm_epsilon', 1e-5
  ),
)
HEADS = (
  fields_lib.Field('ssm.time_step_rank', 'num_heads'),
  fields_lib.Field('ssm.group_count', 'n_groups'),
)
INNER = 'ssm.inner_size'


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  del file
  own = fields_lib.read(fields, (*FIELDS, *HEADS))
  inner, heads = fields.whole(INNER), own['num_heads']
  if not heads or inner % heads:
    fields.refuse(INNER, inner, f'ssm.time_step_rank={heads} must divide it')
  return own | {
    'model_type': 'mamba2',
    'head_dim': inner // heads,
    'expand': inner / max(1, own['hidden_size']),
  }


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  return {
    **architectures.WITHOUT_HEADS,
    **fields_lib.write(theirs, (*FIELDS, *HEADS)),
    architectures.CONTEXT: architectures.ANY_LENGTH,
    INNER: theirs['num_heads'] * theirs['head_dim'],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  own = hf_mamba2.layer(config)
  return tensors_lib.named(own, NAMES, shapes(config.cell))


def shapes(cell: cells.Config) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of tensors that transformers has in another one."""
  H, G, inner = cell.heads, cell.groups, cell.heads * cell.value_width
  channels = inner + 2 * G * cell.key_width
  return {
    'ssm_a': (H, 1),
    'ssm_d': (H, 1),
    'ssm_norm.weight': (G, inner // G),
    'ssm_conv1d.weight': (channels, cell.convolution),
  }


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
