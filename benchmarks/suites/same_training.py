"""Training as the authors' code trains: the same weights, batches and steps.

Each architecture that the importer reads is trained twice in float32, as
workloads/same_training.py says: by a run of ours, and by PyTorch on the model
of transformers. Models of flash-linear-attention are its recurrences for a CPU
in layers of ours (workloads/fla_models.py). Documents are sentences of Python's
manual, so rows are padded; labels of padding are ignored. Nothing is timed.

  pip install -e .[peers]
  python -m benchmarks.run --suite=same_training      half a minute a case
"""

import pathlib
import tempfile
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

PLATFORM = 'cpu'
QUICK = {'steps': 12, 'warmup': 4}
ATTENTION = {
  'hidden_size': 32,
  'intermediate_size': 48,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'max_position_embeddings': 64,
}
EXPERTS = {'moe_intermediate_size': 24, 'num_experts_per_tok': 2}
DELTA = {
  'hidden_size': 32,
  'intermediate_size': 48,
  'num_hidden_layers': 2,
  'num_heads': 2,
  'conv_size': 4,
  'norm_eps': 1e-5,
}
MAMBA2 = {  # beside attention
  'mamba_n_heads': 4,
  'mamba_n_groups': 2,
  'mamba_d_state': 8,
  'mamba_d_head': 16,
  'mamba_chunk_size': 16,
}
LINEAR = {
  'linear_num_key_heads': 2,
  'linear_num_value_heads': 4,
  'linear_key_head_dim': 8,
  'linear_value_head_dim': 8,
}
SIZES: dict[str, dict[str, Any]] = {
  'GPT2': {
    'n_embd': 32,
    'n_layer': 2,
    'n_head': 4,
    'n_positions': 64,
    'resid_pdrop': 0.0,
    'embd_pdrop': 0.0,
    'attn_pdrop': 0.0,
    'bos_token_id': 256,
    'eos_token_id': 256,
  },
  'Llama': ATTENTION,
  'Qwen2': ATTENTION | {'tie_word_embeddings': True},
  'Qwen3': ATTENTION | {'head_dim': 12},
  'Mistral': ATTENTION | {'sliding_window': 12},
  'Mixtral': ATTENTION | {'num_local_experts': 4, 'sliding_window': 12},
  'Qwen3Moe': ATTENTION | EXPERTS | {'num_experts': 4},
  'Mamba': {
    'hidden_size': 32,
    'num_hidden_layers': 2,
    'state_size': 8,
    'time_step_rank': 4,
  },
  'Mamba2': {
    'hidden_size': 32,
    'num_hidden_layers': 2,
    'num_heads': 4,
    'head_dim': 16,
    'state_size': 16,
    'n_groups': 2,
    'chunk_size': 16,
  },
  'xLSTM': {
    'hidden_size': 32,
    'num_hidden_layers': 2,
    'num_heads': 2,
    'use_cache': False,
    'autocast_kernel_dtype': 'float32',
  },
  'RecurrentGemma': {
    'hidden_size': 32,
    'intermediate_size': 96,
    'num_hidden_layers': 3,
    'num_attention_heads': 2,
    'num_key_value_heads': 1,
    'lru_width': 32,
    'attention_window_size': 12,
  },
  'Qwen3Next': ATTENTION
  | EXPERTS
  | LINEAR
  | {
    'head_dim': 16,
    'layer_types': ['linear_attention', 'full_attention'],
    'num_experts': 4,
    'shared_expert_intermediate_size': 24,
    'rope_parameters': {
      'rope_type': 'default',
      'rope_theta': 1e4,
      'partial_rotary_factor': 0.25,
    },
  },
  'KimiLinear': ATTENTION
  | EXPERTS
  | {
    'layer_types': ['linear_attention', 'full_attention'],
    'num_key_value_heads': 4,
    'num_local_experts': 4,
    'kv_lora_rank': 16,
    'qk_rope_head_dim': 4,
    'qk_nope_head_dim': 8,
    'v_head_dim': 8,
    'linear_head_dim': 8,
    'linear_num_heads': 4,
    'bos_token_id': 0,
    'eos_token_id': 1,
    'pad_token_id': 2,
  },
  'Qwen3_5Text': ATTENTION
  | LINEAR
  | {'head_dim': 16, 'layer_types': ['linear_attention', 'full_attention']},
  'GraniteMoeHybrid': ATTENTION
  | MAMBA2
  | {
    'shared_intermediate_size': 48,
    'layer_types': ['linear_attention', 'full_attention'],
    'num_local_experts': 0,
    'embedding_multiplier': 1.7,
    'residual_multiplier': 0.6,
    'logits_scaling': 3.0,
  },
  'Bamba': ATTENTION | MAMBA2 | {'attn_layer_indices': [1]},
  'FalconH1': ATTENTION
  | MAMBA2
  | {'mamba_d_ssm': 64, 'ssm_out_multiplier': 0.8, 'key_multiplier': 0.7},
  'NemotronH': ATTENTION
  | {
    'layers_block_type': ['linear_attention', 'mlp', 'full_attention', 'mlp'],
    'head_dim': 8,
    'mamba_num_heads': 4,
    'mamba_head_dim': 16,
    'ssm_state_size': 8,
    'n_groups': 2,
    'chunk_size': 16,
  },
  'Zamba2': {
    'hidden_size': 32,
    'intermediate_size': 48,
    'num_hidden_layers': 3,
    'num_attention_heads': 4,
    'max_position_embeddings': 64,
    'layers_block_type': ['linear_attention', 'hybrid', 'hybrid'],
    'adapter_rank': 4,
    'n_mamba_heads': 4,
    'mamba_ngroups': 2,
    'mamba_d_state': 8,
    'chunk_size': 16,
  },
  'Jamba': ATTENTION
  | {
    'attn_layer_period': 2,
    'attn_layer_offset': 1,
    'num_experts': 1,
    'mamba_d_state': 8,
    'mamba_dt_rank': 4,
  },
  'Lfm2': ATTENTION
  | {'layer_types': ['conv', 'full_attention'], 'block_multiple_of': 8},
  'gated_deltanet': DELTA | {'head_dim': 12, 'expand_v': 1.5},
  'delta_net': DELTA,
  'gla': DELTA | {'expand_k': 0.5, 'expand_v': 1.0},
  'rwkv7': {
    'hidden_size': 32,
    'intermediate_size': 64,
    'num_hidden_layers': 2,
    'head_dim': 16,
    'value_dim': 32,
    'decay_low_rank_dim': 8,
    'a_low_rank_dim': 8,
    'gate_low_rank_dim': 8,
    'v_low_rank_dim': 8,
    'norm_eps': 1e-5,
  },
}
VARIANTS: dict[str, dict[str, Any]] = {  # other constants of both runs
  'GPT2, replies only': {'task': 'dialogue'},
  'Llama, two slices a batch': {'slices': 2},
  'Qwen3, embeddings decay': {'decays_embeddings': True},
  'Mamba2, two slices a batch': {'slices': 2},
}
# Rounding errors grow beyond LIMITS at the others' rate.
SLOWER = {'gla': {'rate': 3e-4}, 'Qwen3Next': {'rate': 3e-4}}
LIMITS = {  # of differences; a test says so for each case
  'loss_difference': 1e-3,
  'gradient_difference': 1e-5,
  'weights_difference': 1e-2,
}


def cases(quick: bool) -> list[case.Case]:
  """Each architecture, and some with other losses and constants."""
  return [
    case.Case(
      name,
      'suites.same_training.trained',
      {'name': name, **(QUICK if quick else {})},
      repeats=0,
    )
    for name in [*SIZES, *VARIANTS][: 1 if quick else None]
  ]


def trained(name: str, steps: int = 300, warmup: int = 30) -> tables.Row:
  """How far a run of ours is from theirs, see same_training.compared.

  Args:
    name: of a case.
    steps: of each run.
    warmup: how many of them the rate rises in.
  """
  from benchmarks.workloads import same_training

  kind = name.partition(',')[0]
  own = VARIANTS.get(name, {}) | SLOWER.get(name, {})
  given = same_training.Constants(steps=steps, warmup=warmup, **own)
  with tempfile.TemporaryDirectory() as folder:
    return same_training.compared(
      kind, SIZES[kind], given, pathlib.Path(folder)
    )


COLUMNS = {
  'rate': lambda row: f'{row.get("rate", 1e-3):g}',
  'loss, first step': lambda row: f'{row["first_loss"]:.3f}',
  'last 20': lambda row: f'{row["last_loss"]:.3f}',
  'largest difference': lambda row: f'{row["loss_difference"]:.1e}',
  'gradient, first step': lambda row: f'{row["gradient_difference"]:.1e}',
  'gradient norms': lambda row: f'{row["norm_difference"]:.1e}',
  'weights at the end': lambda row: f'{row["weights_difference"]:.1e}',
  'steps clipped': lambda row: f'{100 * row["clipped"]:.0f} %',
  'padding': lambda row: f'{100 * row["padding"]:.0f} %',
}


select = tables.newest_of_any_device  # nothing is timed


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each architecture."""
  del plots
  listed = [case.name for case in cases(False) if case.name in rows]
  yield tables.by_row('of', {name: rows[name] for name in listed}, COLUMNS)
  yield tables.unmeasured(cases(False), rows)
