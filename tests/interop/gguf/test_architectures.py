"""Each architecture: a file and back, its names, and its numbers."""

import dataclasses

import gguf
import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.interop import request
from rnn_jax.interop.formats import hf
from rnn_jax.interop.formats.hf import config_json
from rnn_jax.interop.gguf import reader
from rnn_jax.runs import bundle as bundle_lib
from tests.interop.gguf import models
from tests.support import bundles


@pytest.fixture(scope='module', params=models.CASES, name='made')
def _made(request, tmp_path_factory):
  """(Case, bundle, the file of it)."""
  bundle = models.make(request.param)
  folder = tmp_path_factory.mktemp('gguf') / 'out'
  return request.param, bundle, models.write(bundle, folder)


def test_a_file_comes_back_and_is_written_again_to_the_byte(made, tmp_path):
  case, bundle, path = made
  back = models.read(path)
  again = models.write(back, tmp_path / 'again')
  assert again.read_bytes() == path.read_bytes()
  if case.startswith('falcon_h1'):  # whose multipliers are in the matrices
    return
  assert models.config_of(back) == models.config_of(bundle)
  ours, theirs = bundle_lib.flat(bundle.params), bundle_lib.flat(back.params)
  # Rates are stored as -exp(A), such scales with 1 added: a bit may change.
  plus_one = bundle.config.model.norm_plus_one
  assert ours.keys() == theirs.keys()
  for name, x in ours.items():
    leaf = name.rpartition('.')[2]
    if leaf == 'log_rate' or (leaf == 'scale' and plus_one):
      np.testing.assert_allclose(theirs[name], x, rtol=0, atol=2e-7)
    else:
      np.testing.assert_array_equal(theirs[name], x, name)


def test_names_are_those_of_its_architecture(made):
  _, _, path = made
  file = reader.read(path)
  name = file.values['general.architecture']
  by_name = {text: one for one, text in gguf.MODEL_ARCH_NAMES.items()}
  known = {gguf.TENSOR_NAMES[x] for x in gguf.MODEL_TENSORS[by_name[name]]}
  for tensor in file.tensors:
    stem = tensor.removesuffix('.weight').removesuffix('.bias')
    parts = stem.split('.')
    if parts[0] == 'blk':
      parts[1] = '{bid}'
    assert '.'.join(parts) in known, tensor
  for key in file.values:
    prefix = key.partition('.')[0]
    assert prefix in ('general', 'tokenizer', name), key


def stored(bundle):
  """Tensors by transformers' names."""
  _, rows = config_json.describe(bundle)
  leaves = bundle_lib.flat(bundle.params)
  return {name: x.take(leaves) for name, x in rows.items()}


def numbers(bundle, tmp_path):
  """(Tensors of transformers, those of the file)."""
  file = reader.read(models.write(bundle, tmp_path / 'out'))
  return stored(bundle), {name: file.read(name) for name in file.tensors}


def test_rows_of_queries_and_keys_of_a_llama_are_pairs(tmp_path):
  theirs, own = numbers(models.make('llama'), tmp_path)
  for part, heads in (('q', 4), ('k', 2)):
    x = theirs[f'model.layers.1.self_attn.{part}_proj.weight']
    want = np.stack(
      [
        x[head * 24 + half * 12 + pair]
        for head in range(heads)
        for pair in range(12)
        for half in range(2)
      ]
    )
    np.testing.assert_array_equal(own[f'blk.1.attn_{part}.weight'], want)
  np.testing.assert_array_equal(
    own['blk.1.attn_v.weight'], theirs['model.layers.1.self_attn.v_proj.weight']
  )


def test_rates_and_taps_of_mamba2(tmp_path):
  theirs, own = numbers(models.make('mamba2'), tmp_path)
  layer = 'backbone.layers.1.mixer'
  want = -np.exp(theirs[f'{layer}.A_log'].astype(np.float64))
  np.testing.assert_allclose(own['blk.1.ssm_a'][:, 0], want, rtol=1e-7)
  taps = theirs[f'{layer}.conv1d.weight']
  np.testing.assert_array_equal(own['blk.1.ssm_conv1d.weight'], taps[:, 0])
  scale = theirs[f'{layer}.norm.weight'].reshape(2, 64)
  np.testing.assert_array_equal(own['blk.1.ssm_norm.weight'], scale)


def test_parts_of_a_gated_deltanet_of_qwen3_next(tmp_path):
  theirs, own = numbers(models.make('qwen3_next'), tmp_path)
  x = theirs['model.layers.2.linear_attn.in_proj_qkvz.weight']
  heads = x.reshape(2, 2 * 32 + 2 * 64, 64)  # q, k, v, z of each head of keys
  q, k, v, z = np.split(heads, (32, 64, 128), axis=1)
  want = np.concatenate([part.reshape(-1, 64) for part in (q, k, v)])
  np.testing.assert_array_equal(own['blk.2.attn_qkv.weight'], want)
  np.testing.assert_array_equal(
    own['blk.2.attn_gate.weight'], z.reshape(-1, 64)
  )
  scale = theirs['model.layers.2.input_layernorm.weight']
  np.testing.assert_array_equal(own['blk.2.attn_norm.weight'], 1 + scale)


def test_maps_of_latents_of_kimi_linear(tmp_path):
  theirs, own = numbers(models.make('kimi_linear'), tmp_path)
  x = theirs['model.layers.1.self_attn.kv_b_proj.weight'].reshape(4, 40, 32)
  np.testing.assert_array_equal(
    own['blk.1.attn_k_b.weight'], x[:, :24].transpose(0, 2, 1)
  )
  np.testing.assert_array_equal(own['blk.1.attn_v_b.weight'], x[:, 24:])


@pytest.mark.parametrize(
  ('case', 'changed', 'named'),
  (
    ('mixtral', {'sliding_window': 5}, r'cell\.window=4, not 64'),
    ('qwen2', {'head_dim': 24}, 'key_length=24: only'),
    ('qwen3', {'attention_bias': True}, r'cell\.biases=True'),
    ('qwen3_moe', {'norm_topk_prob': False}, r'experts\.normalized=False'),
    ('llama, YaRN', {'rope_scaling': models.YARN | {'beta_fast': 8}}, 'rotary'),
    ('gpt2', {'activation_function': 'relu'}, "mlp='relu'"),
    ('mamba', {'use_conv_bias': False}, 'convolution_bias=False'),
    ('mamba', {'expand': 3}, 'inner_size=192: only'),
    ('rwkv7', {'norm_eps': 1e-4}, 'layer_norm_epsilon=0.0001: with heads of'),
    ('rwkv7', {'norm_first': False}, 'embedding_norm=False'),
    ('qwen3_next', {'linear_value_head_dim': 16}, 'inner_size=64: only'),
    ('kimi_linear', {'q_lora_rank': 8}, 'query_rank=8'),
    ('kimi_linear', {'linear_num_heads': 2}, 'kda.heads=2, not 4'),
  ),
)
def test_what_llama_cpp_does_not_compute_is_named(
  case, changed, named, tmp_path
):
  bundle = models.undrawn(case, **changed)
  with pytest.raises(errors.InputError, match=named):
    models.write(bundle, tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


def test_a_model_that_has_no_architecture_is_refused(tmp_path):
  values = {'model_type': 'xlstm', 'num_blocks': 1, 'num_heads': 2}
  models.CASES['xlstm'] = values | {'hidden_size': 16, 'qk_dim_factor': 0.5}
  try:
    bundle = models.undrawn('xlstm')
  finally:
    del models.CASES['xlstm']
  with pytest.raises(errors.InputError, match='no architecture for xlstm'):
    models.write(bundle, tmp_path / 'out')


def test_epsilon_of_fused_norms_of_rwkv7_is_left_out(tmp_path):
  bundle = models.make('rwkv7', fuse_norm=True)
  back = models.read(models.write(bundle, tmp_path / 'out'))
  assert bundle.config.cell.key_epsilon == 1e-6
  assert back.config.cell.key_epsilon == 1e-24
  jax.tree.map(np.testing.assert_array_equal, back.params, bundle.params)


def test_the_context_of_a_file_is_written_again(tmp_path):
  bundle = models.make('llama', max_position_embeddings=9000)
  path = models.write(bundle, tmp_path / 'out')
  assert reader.read(path).values['llama.context_length'] == 4096
  kept = {'config.json': '{"max_position_embeddings": 9000}'}
  bundle = dataclasses.replace(bundle, kept=kept)
  path = models.write(bundle, tmp_path / 'kept')
  assert reader.read(path).values['llama.context_length'] == 9000
  back = models.read(path)
  assert back.config.data.length == 4096
  again = models.write(back, tmp_path / 'again')
  assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize('case', ('llama, scaled', 'mamba2', 'qwen3_next'))
def test_a_file_becomes_a_folder_of_transformers(case, tmp_path):
  back = models.read(models.write(models.make(case), tmp_path / 'out'))
  folder = tmp_path / 'theirs'
  hf.write(back, request.Target(folder))
  again = hf.read(request.Source(folder))
  assert models.config_of(again) == models.config_of(back)
  jax.tree.map(np.testing.assert_array_equal, again.params, back.params)


def test_a_qwen3_next_without_experts_is_a_qwen35(tmp_path):
  bundle = models.make('qwen3_next', num_experts=0, intermediate_size=32)
  path = models.write(bundle, tmp_path / 'out')
  assert reader.read(path).values['general.architecture'] == 'qwen35'
  back = models.read(path)
  assert models.config_of(back) == models.config_of(bundle)


def test_multipliers_of_falcon_h1_are_in_the_matrices(tmp_path):
  bundle = models.make('falcon_h1')
  back = models.read(models.write(bundle, tmp_path / 'out'))
  cell, model = back.config.cell, back.config.model
  assert cell.mamba2.multipliers == () and cell.attention.score_scale == 0
  assert cell.attention_multiplier == cell.mamba2_multiplier == 1
  assert model.embedding_multiplier == model.head_multiplier == 1
  tokens = np.arange(20)[None]
  want = bundles.logits(bundle, tokens)
  np.testing.assert_allclose(
    bundles.logits(back, tokens), want, rtol=0, atol=1e-5 * np.abs(want).max()
  )
