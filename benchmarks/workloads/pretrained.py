"""Models of transformers with random weights, in folders as it saves them.

Each is of the layout that its `model_type` names, small enough to compute its
logits in float64, and LARGE is as large as the published Mamba-2 of 130 million
weights. Parameters differ from their initial values, norms included.
"""

import contextlib
import inspect
import os
import pathlib
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np

WIDTH, VOCABULARY, LENGTH = 128, 1000, 256
# Buffers that training changes.
CORRECTIONS = 'e_score_correction_bias', 'expert_bias'
ATTENTION = {
  'hidden_size': WIDTH,
  'intermediate_size': 256,
  'num_hidden_layers': 4,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'max_position_embeddings': 2 * LENGTH,
}
EXPERTS = {'moe_intermediate_size': 64, 'num_experts_per_tok': 3}
ROTATED = {'rope_type': 'default', 'rope_theta': 1e4}
PUBLISHED = 'layers.0.block_sparse_moe', 'layers.0.mlp'
SIZES: dict[str, dict[str, Any]] = {  # by the class in transformers
  'Llama': ATTENTION,
  'Qwen2': ATTENTION | {'tie_word_embeddings': True},
  'Qwen3': ATTENTION | {'head_dim': 48},
  'Mistral': ATTENTION | {'sliding_window': 64},
  'Mixtral': ATTENTION | {'num_local_experts': 8, 'sliding_window': 64},
  'Qwen3Moe': ATTENTION | EXPERTS | {'num_experts': 8},
  'Mamba': {
    'hidden_size': WIDTH,
    'num_hidden_layers': 4,
    'state_size': 16,
    'time_step_rank': 8,
  },
  'Mamba2': {
    'hidden_size': WIDTH,
    'num_hidden_layers': 4,
    'num_heads': 8,
    'head_dim': 32,
    'state_size': 32,
    'n_groups': 2,
    'chunk_size': 64,
  },
  'xLSTM': {
    'hidden_size': WIDTH,
    'num_hidden_layers': 4,
    'num_heads': 4,
    'use_cache': False,
  },
  'RecurrentGemma': {
    'hidden_size': WIDTH,
    'intermediate_size': 256,
    'num_hidden_layers': 6,
    'num_attention_heads': 4,
    'num_key_value_heads': 1,
    'lru_width': WIDTH,
    'attention_window_size': 64,
  },
  'Qwen3Next': ATTENTION
  | EXPERTS
  | {
    'head_dim': 32,
    'num_experts': 8,
    'shared_expert_intermediate_size': 64,
    'linear_num_key_heads': 2,
    'linear_num_value_heads': 4,
    'linear_key_head_dim': 32,
    'linear_value_head_dim': 32,
    'rope_parameters': ROTATED | {'partial_rotary_factor': 0.25},
  },
  'KimiLinear': ATTENTION
  | EXPERTS
  | {
    'layer_types': ['linear_attention', 'full_attention'] * 2,
    'num_key_value_heads': 4,
    'num_local_experts': 8,
    'kv_lora_rank': 64,
    'qk_rope_head_dim': 16,
    'qk_nope_head_dim': 32,
    'v_head_dim': 32,
    'linear_head_dim': 32,
    'linear_num_heads': 4,
    'bos_token_id': 0,
    'eos_token_id': 1,
    'pad_token_id': 2,
  },
}
LARGE = {  # the published 130 million
  'vocab_size': 50288,
  'hidden_size': 768,
  'num_hidden_layers': 24,
  'num_heads': 24,
  'head_dim': 64,
  'state_size': 128,
  'n_groups': 1,
  'tie_word_embeddings': True,
}


def write(
  kind: str,
  sizes: Mapping[str, Any],
  folder: str | os.PathLike,
  noise: float = 0.05,
  **saving: Any,
) -> Any:
  """Writes a model of random weights; returns it, in float32, as PyTorch's.

  Args:
    kind: its class in transformers, without 'ForCausalLM'.
    sizes: keys of its config.
    folder: where it is saved, with the options `saving` of `save_pretrained`.
    noise: the deviation of what is added to all parameters.
  """
  import torch
  import transformers

  torch.manual_seed(0)
  # Their other products of experts have no float64.
  options = {'experts_implementation': 'eager', 'vocab_size': VOCABULARY}
  config = getattr(transformers, f'{kind}Config')(**options | dict(sizes))
  model = transformers.AutoModelForCausalLM.from_config(config).eval()
  with torch.no_grad():
    for name, x in [*model.named_parameters(), *model.named_buffers()]:
      if isinstance(x, torch.nn.Parameter) or name.endswith(CORRECTIONS):
        x.add_(noise * torch.randn_like(x))
  model.save_pretrained(folder, **saving)
  return model


def publish(folder: str | os.PathLike) -> None:
  """Names Kimi Linear's dense MLP in a folder as published folders do."""
  import safetensors.numpy

  for path in pathlib.Path(folder).glob('model*.safetensors'):
    tensors = safetensors.numpy.load_file(path)
    named = {name.replace(*PUBLISHED): x for name, x in tensors.items()}
    safetensors.numpy.save_file(named, path, {'format': 'pt'})
  for path in pathlib.Path(folder).glob('*.index.json'):
    path.write_text(path.read_text().replace(*PUBLISHED))


def logits(model: Any, tokens_BxL: np.ndarray) -> np.ndarray:
  """Their logits BxLxV in float64, of their own functions in PyTorch."""
  import torch

  with torch.no_grad(), plain_functions():
    return model.double()(torch.from_numpy(tokens_BxL)).logits.numpy()


def greedy(model: Any, tokens_BxL: np.ndarray, count: int) -> np.ndarray:
  """Returns `count` tokens after each row, Bx_: of the highest logits."""
  made = tokens_BxL
  for _ in range(count):
    best = np.argmax(logits(model, made)[:, -1:], -1)
    made = np.concatenate([made, best], 1)
  return made[:, tokens_BxL.shape[1] :]


@contextlib.contextmanager
def plain_functions() -> Iterator[None]:
  """Takes their functions in PyTorch where fla's kernels, for a GPU, are."""
  from transformers.models.kimi_linear import modeling_kimi_linear
  from transformers.models.qwen3_5 import modeling_qwen3_5
  from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
  from transformers.models.qwen3_next import modeling_qwen3_next

  delta, replaced = 'torch_chunk_gated_delta_rule', []
  for module, name in (
    (modeling_kimi_linear, 'chunk_kimi_delta_attention'),
    (modeling_qwen3_5, delta),
    (modeling_qwen3_5_moe, delta),
    (modeling_qwen3_next, delta),
  ):
    function = getattr(module, name)
    replaced.append((module, name, function))
    setattr(module, name, inspect.unwrap(function))
  try:
    yield
  finally:
    for module, name, function in replaced:
      setattr(module, name, function)
