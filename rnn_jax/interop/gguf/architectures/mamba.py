"""Mamba: rates are stored as -exp(A), and inside it is twice as wide."""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import mamba as hf_mamba
from rnn_jax.interop.gguf import architectures
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import mamba2

ARCHITECTURES = {'mamba': ('mamba',)}
NUMBERS = mamba2.NUMBERS
NAMES = {
  'norm': 'attn_norm',
  'mixer.in_proj': 'ssm_in',
  'mixer.conv1d': 'ssm_conv1d',
  'mixer.x_proj': 'ssm_x',
  'mixer.dt_proj': 'ssm_dt',
  'mixer.A_log': 'ssm_a',
  'mixer.D': 'ssm_d',
  'mixer.out_proj': 'ssm_out',
}
FIELDS = (
  *mamba2.FIELDS,
  fields_lib.Field('ssm.time_step_rank', 'time_step_rank'),
)
EXPAND = 2


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  del file
  own = fields_lib.read(fields, FIELDS)
  inner = EXPAND * own['hidden_size']
  fields.one_of(mamba2.INNER, (inner,), None)
  fields.one_of('ssm.dt_b_c_rms', (False,), False)
  return own | {'model_type': 'mamba', 'expand': EXPAND, 'use_conv_bias': True}


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  return {
    **architectures.WITHOUT_HEADS,
    **fields_lib.write(theirs, FIELDS),
    architectures.CONTEXT: architectures.ANY_LENGTH,
    mamba2.INNER: theirs['intermediate_size'],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  cell = config.cell
  shapes = {'ssm_conv1d.weight': (cell.inner_width, cell.convolution)}
  return tensors_lib.named(hf_mamba.layer(config), NAMES, shapes)


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
