"""Falcon-H1: Mamba-2 and attention side by side, without multipliers.

A file has no multipliers: they are a part of the matrices that they multiply,
those of attention's scores of the keys'. So a model comes back with other
parameters, and multipliers of 1. The norm of Mamba-2 is after its gate, or
there is none; that before the MLP is a tensor without 'weight'.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import falcon_h1 as hf_falcon_h1
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import granitehybrid
from rnn_jax.interop.gguf.architectures import jamba
from rnn_jax.interop.gguf.architectures import llama
from rnn_jax.interop.gguf.architectures import mamba2

ARCHITECTURES = {'falcon-h1': ('falcon_h1',)}
NUMBERS = mamba2.NUMBERS
IGNORED = (  # which are in the matrices
  'model.embedding_multiplier',
  'model.head_multiplier',
  'model.mlp_multiplier',
  'model.swish_beta',
  'cell.attention_multiplier',
  'cell.mamba2_multiplier',
  'cell.attention.score_scale',
  'cell.mamba2.multipliers',
)
NAMES = {
  name: x
  for name, x in (granitehybrid.NAMES | jamba.NAMES).items()
  if name != 'pre_ff_layernorm'
} | {
  'mamba.norm': 'ssm_norm',
  'mamba.dt_bias': 'ssm_dt.bias',
  'pre_ff_layernorm.weight': 'ffn_norm',
}
FIELDS = (*llama.FIELDS, llama.WIDTH, *granitehybrid.MIXER)
NORM_SCALE = 'ssm_norm.weight'


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = llama.attention(fields, file)
  own |= fields_lib.read(fields, FIELDS)
  return own | {
    'model_type': 'falcon_h1',
    hf_falcon_h1.INNER: fields.whole(mamba2.INNER),
    'mamba_rms_norm': any(x.endswith(NORM_SCALE) for x in file.tensors),
    'mamba_norm_before_gate': False,
  }


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json.

  Raises:
    InputError: a tied head has another multiplier than the embedding.
  """
  embedding, head = theirs['embedding_multiplier'], theirs[hf_falcon_h1.HEAD]
  if theirs['tie_word_embeddings'] and embedding != head:
    errors.refuse(
      'model.head_multiplier', head, f'a tied head can only have {embedding}'
    )
  return {
    **llama.described_attention(theirs),
    **fields_lib.write(theirs, FIELDS),
    mamba2.INNER: theirs[hf_falcon_h1.INNER],
  }


def numbers(config: config_lib.Config) -> Mapping[str, tensors_lib.Numbers]:
  """Returns the multipliers of matrices by name."""
  theirs = hf_falcon_h1.describe(config, 'falcon_h1')
  embedding, head = theirs['embedding_multiplier'], theirs[hf_falcon_h1.HEAD]
  gate, down = theirs['mlp_multipliers']
  cell = config.cell.mamba2
  rows = np.repeat(
    theirs['ssm_multipliers'],
    [cell.groups * width for width in cell.widths.values()],
  )
  each = {
    tensors_lib.EMBEDDING: embedding,
    tensors_lib.HEAD: head,
    'ffn_gate.weight': gate,
    'ffn_down.weight': down,
    'attn_k.weight': theirs['key_multiplier'],
    'attn_output.weight': theirs['attention_out_multiplier'],
    'ssm_out.weight': theirs['ssm_out_multiplier'],
    'ssm_in.weight': rows[:, None],
  }
  return {name: tensors_lib.multiplied(x) for name, x in each.items()}


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  shapes = mamba2.shapes(config.cell.mamba2)
  return tensors_lib.named(hf_falcon_h1.layer(config), NAMES, shapes)


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
