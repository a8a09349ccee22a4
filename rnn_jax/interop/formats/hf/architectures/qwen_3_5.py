"""Qwen3.5, the part that writes text: a Qwen3-Next with other tensors.

    x = x + cell(rms_norm(x) * (1 + s))  x = x + mlp(rms_norm(x) * (1 + t))

A DeltaNet's q, k and v are projected by one matrix, which has all queries, all
keys and all values in turn, and its g, b and a by one each. `qwen3_5_text` has
an MLP in each layer, `qwen3_5_moe_text` experts, whose gates always sum to 1.
A folder of a model that also reads images, `qwen3_5` or `qwen3_5_moe`, has
names with another prefix and the text's keys in `text_config`; only its text
part is read, and written. Positions of text are the same on all three axes of
`mrope_section`, so that these are plain rotary positions.
Source: Qwen Team, "Qwen3.5", 2026; Yang et al., "Gated Delta Networks:
Improving Mamba2 with Delta Rule", 2024.
"""

import dataclasses
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import gated_deltanet
from rnn_jax.cells.parts import delta
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import llama
from rnn_jax.interop.formats.hf.architectures import mixtral
from rnn_jax.interop.formats.hf.architectures import qwen3_next

MODEL_TYPES = {
  'qwen3_5_text': 'Qwen3_5ForCausalLM',
  'qwen3_5_moe_text': 'Qwen3_5MoeForCausalLM',
}
NAMES = llama.NAMES._replace(optional='model.', instead='model.language_model.')
CELLS = qwen3_next.CELLS
DEFAULTS = {  # theirs where they aren't Qwen3-Next's
  'qwen3_5_text': {'num_key_value_heads': 4, 'intermediate_size': 12288},
  'qwen3_5_moe_text': {'num_experts': 256, 'num_experts_per_tok': 8},
}
FIXED = {  # what their config.json doesn't say
  'qwen3_5_text': {'num_experts': 0},
  'qwen3_5_moe_text': {'norm_topk_prob': True},
}
APART = {  # the parts of our projection
  'output_gate': 'in_proj_z',
  'beta': 'in_proj_b',
  'decay': 'in_proj_a',
}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  model_type = keys.values['model_type']
  given = {k: x for k, x in keys.values.items() if x is not None}
  values = DEFAULTS[model_type] | given | FIXED[model_type]
  return qwen3_next.options(dataclasses.replace(keys, values=values))


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  own = qwen3_next.describe(config, model_type)
  absent = {*FIXED[model_type], *mixtral.NEEDED, 'mlp_only_layers'}
  return {name: x for name, x in own.items() if name not in absent}


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return qwen3_next.with_projections(config, _projections)


def _projections(cell: gated_deltanet.Config, width):
  H, mixed = cell.heads, delta.Cell.mixed
  rows = H * sum(cell.widths[part] for part in mixed)

  def mix(x):
    return [table.head_view(cell.widths, part, H)(x) for part in mixed]

  return [
    *table.dense('in_proj_qkv', 'projection', (rows, width), view=mix),
    *table.projected(APART, cell.widths, H, width),
  ]
