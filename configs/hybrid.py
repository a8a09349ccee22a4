"""Hybrids of recurrent cells and attention, after published layouts.

  python -m launch.train --config=configs/hybrid.py --workdir=runs/hybrid
  python -m launch.train --config=configs/hybrid.py:recurrent_gemma ...

The name after the colon is one of MODELS:

  qwen3_next       3 Gated DeltaNet : 1 attention of grouped queries with norms
                   and a gate, whose positions rotate a quarter of a head, each
                   with experts, one of them shared (Qwen Team, 2025)
  kimi_linear      3 Kimi Delta Attention : 1 latent attention without
                   positions; an MLP in the first layer, in the others experts
                   chosen by sigmoids, one of them shared (Kimi Team, "Kimi
                   Linear", 2025)
  samba            Mamba-2 and attention over a window in turn (Ren et al.,
                   "Samba", 2024, with Mamba)
  recurrent_gemma  2 RG-LRU : 1 attention over a window, of one key and value
                   head, whose positions rotate half of a head (De et al.,
                   "Griffin", 2024)

each with an MLP after every cell, as published; what isn't theirs are the
sizes. Options of a cell are flags, as --config.cell.attention.window=128. Runs
of qwen3_next and kimi_linear can be exported for transformers
(docs/interop.md).

qwen3_next has 9.4 million parameters, 4.6 million of them active per token. Its
2,000 steps take more than an hour on 2 CPU cores.
"""

from rnn_jax import config as config_lib
from rnn_jax import errors

MODELS = {  # the pattern, and other keys of the config
  'qwen3_next': (
    (*3 * ('gated_deltanet',), 'attention'),
    {
      'model.layers': 8,
      'model.mlp_width': 128,
      'model.experts': {'count': 8, 'per_token': 2, 'shared_width': 128},
      'model.norm_scale': True,
      'model.norm_plus_one': True,
      'model.norm_epsilon': 1e-6,
      'model.head_bias': False,
      'cell.gated_deltanet': {
        'heads': 4,
        'key_width': 32,
        'value_heads': 8,
        'value_width': 32,
        'norm_scale': True,
      },
      'cell.attention': {
        'heads': 4,
        'kv_heads': 2,
        'head_width': 64,
        'rotary_width': 16,
        'qk_norm': True,
        'norm_plus_one': True,
        'output_gate': True,
      },
    },
  ),
  'kimi_linear': (
    (*3 * ('kda',), 'latent_attention'),
    {
      'model.layers': 8,
      'model.mlp_width': 128,
      'model.experts': {
        'count': 8,
        'per_token': 2,
        'scores': 'sigmoid',
        'correction': True,
        'gate_scale': 2.446,
        'shared_width': 128,
        'shared_gate': False,
        'dense_layers': 1,
        'dense_width': 512,
      },
      'model.norm_scale': True,
      'model.norm_epsilon': 1e-5,
      'model.head_bias': False,
      'cell.kda': {
        'heads': 4,
        'key_width': 32,
        'value_width': 32,
        'rank': 32,
        'shared_gate': True,
        'output_gate_bias': False,
        'norm_scale': True,
        'norm_epsilon': 1e-5,
      },
      'cell.latent_attention': {
        'heads': 4,
        'key_width': 32,
        'shared_width': 16,
        'value_width': 32,
        'kv_rank': 64,
        'rotary': 0.0,
      },
    },
  ),
  'samba': (
    ('mamba2', 'attention'),
    {
      'model.layers': 6,
      'cell.mamba2': {'heads': 8, 'key_width': 32, 'value_width': 64},
      'cell.attention': {'heads': 4, 'head_width': 64, 'window': 64},
    },
  ),
  'recurrent_gemma': (
    ('rg_lru', 'rg_lru', 'attention'),
    {
      'model.layers': 6,
      'model.mlp': 'geglu',
      'cell.rg_lru': {'heads': 4, 'head_width': 64},
      'cell.attention': {
        'heads': 4,
        'kv_heads': 1,
        'head_width': 64,
        'rotary_width': 32,
        'window': 64,
      },
    },
  ),
}


def get_config(model='qwen3_next'):
  """Returns the config of one of MODELS.

  Raises:
    InputError: `model` is not one of them.
  """
  if model not in MODELS:
    raise errors.InputError(
      f'configs/hybrid.py:{model}: choose one of {[*MODELS]}'
    )
  cells, keys = MODELS[model]
  config = config_lib.default(cells)

  config.data.length = 256
  config.data.batch_size = 16
  config.data.boundaries = (128, 256)

  config.model.width = 256
  config.model.mlp_width = 512
  for key, value in keys.items():
    section, _, name = key.partition('.')
    if isinstance(value, dict):
      config[section][name].update(value)
    else:
      config[section][name] = value

  config.optimizer.learning_rate = 2e-3
  config.optimizer.weight_decay = 0.1

  config.train.steps = 2000
  config.sample.prompt = 'def '
  return config
