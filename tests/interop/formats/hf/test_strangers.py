"""Folders that a stranger wrote: wrong values and files, each in one line."""

import json
import time

import pytest

from rnn_jax import errors
from rnn_jax.interop import keys as keys_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.faults import folders as hostile
from tests.interop.formats.hf import folders
from tests.interop.formats.hf import test_architectures as architectures

YARN = folders.YARN
LONG = 10**400
MANY = 3_000_000
WRONG = {  # (architecture, keys, what the line names)
  'a list as the type': ('llama', {'model_type': ['llama']}, 'model_type'),
  'a number of 400 digits': ('llama', {'rms_norm_eps': LONG}, 'rms_norm_eps'),
  'NaN': ('llama', {'rms_norm_eps': float('nan')}, 'rms_norm_eps=nan'),
  'a list as activation': ('llama', {'hidden_act': ['silu']}, 'hidden_act'),
  'a number as rotary': ('llama', {'rope_parameters': 3}, 'rope_parameters=3'),
  'a list as scaling': ('llama', {'rope_scaling': [1]}, 'rope_scaling'),
  'a list as its kind': (
    'llama',
    {'rope_scaling': {'type': ['yarn']}},
    'rope_type',
  ),
  'a factor of nothing': (
    'yarn',
    {'rope_scaling': YARN | {'factor': 0}},
    'factor=0.*give 1e-06',
  ),
  'a factor of text': (
    'yarn',
    {'rope_scaling': YARN | {'factor': 'x'}},
    'factor',
  ),
  'bands in reverse': (
    'yarn',
    {'rope_scaling': YARN | {'beta_slow': 8}},
    'beta_slow=8',
  ),
  'no heads': ('llama', {'num_attention_heads': 0}, 'num_attention_heads=0'),
  'more heads than width': (
    'llama',
    {'num_attention_heads': 13, 'head_dim': None},
    'head_dim=0',
  ),
  'layer types of numbers': ('qwen2', {'layer_types': [[1]]}, 'layer_types'),
  'layer types of a number': ('qwen3', {'layer_types': 3}, 'layer_types=3'),
  'experts of a list': ('mixtral', {'num_local_experts': []}, 'num_local'),
  'layers without experts': (
    'qwen3_moe',
    {'mlp_only_layers': 1},
    'mlp_only_layers=1',
  ),
  'no limits': ('mamba2', {'time_step_limit': 3}, 'time_step_limit=3'),
  'one limit': ('mamba2', {'time_step_limit': [0]}, 'time_step_limit'),
  'limits of texts': (
    'mamba2',
    {'time_step_limit': [{'__float__': 'x'}, {}]},
    'time_step_limit',
  ),
  'an infinite factor': (
    'mamba2',
    {'expand': float('inf')},
    'expand=inf: give',
  ),
  'a factor of 10^12': ('xlstm', {'ffn_proj_factor': 1e12}, 'model.mlp_width'),
  'heads of xLSTM': ('xlstm', {'num_heads': 0}, 'num_heads=0'),
  'an infinite width': (
    'xlstm',
    {'qk_dim_factor': float('inf')},
    'qk_dim_factor=inf',
  ),
  'block types of a number': (
    'recurrent_gemma',
    {'block_types': 3},
    'block_types=3',
  ),
  'block types of lists': (
    'recurrent_gemma',
    {'block_types': [[]]},
    'block_types',
  ),
  'heads of RG-LRUs': (
    'recurrent_gemma',
    {'num_attention_heads': 0},
    'num_attention_heads=0',
  ),
  'negative layers': (
    'qwen3_next',
    {'num_hidden_layers': -1},
    'num_hidden_layers=-1',
  ),
  'layer types of a text': (
    'qwen3_next',
    {'layer_types': 'full_attention'},
    'layer_types',
  ),
  'linear attention of a list': (
    'kimi_linear',
    {'linear_attn_config': [1]},
    'linear_attn_config',
  ),
  'layers that are numbers': (
    'kimi_linear',
    {
      'layer_types': None,
      'linear_attn_config': {'kda_layers': 3, 'full_attn_layers': [2]},
    },
    'kda_layers=3',
  ),
  'layers that are lists': (
    'kimi_linear',
    {
      'layer_types': None,
      'linear_attn_config': {'kda_layers': [[1]], 'full_attn_layers': [2]},
    },
    'linear_attn_config',
  ),
  'widths of lists': ('rwkv7', {'value_dim': [[1], [1], [1]]}, 'value_dim'),
  'no heads of GLA': ('gla', {'num_heads': 0}, 'num_heads=0'),
  'no heads of DeltaNet': ('delta_net', {'num_heads': 0}, 'num_heads=0'),
  'a width below 0': ('mamba', {'hidden_size': -1}, 'hidden_size=-1'),
  'three million layers': (
    'llama',
    {'num_hidden_layers': MANY},
    'num_hidden_layers=3000000: give 4,096 or less',
  ),
  'three million layers of two kinds': (
    'qwen3_next',
    {'num_hidden_layers': MANY, 'layer_types': None},
    'num_hidden_layers=3000000',
  ),
  'a head of 10^8': ('llama', {'head_dim': 10**8}, 'head_dim=100000000'),
  'a vocabulary of 2^31': ('llama', {'vocab_size': 2**31}, 'vocab_size='),
  'a context of 2^31': (
    'llama',
    {'max_position_embeddings': 2**31},
    'max_position_embeddings=2147483648: give',
  ),
  'taps of 10^6': ('mamba', {'conv_kernel': 10**6}, 'conv_kernel=1000000'),
  'a million experts': (
    'mixtral',
    {'num_local_experts': 10**6},
    'num_local_experts=1000000',
  ),
  'experts in many layers': (
    'mixtral',
    {'num_local_experts': 10**4, 'num_hidden_layers': 4000},
    'num_hidden_layers=4000: 40,000,000 experts',
  ),
  'a token of text': ('llama', {'eos_token_id': 'x'}, 'eos_token_id'),
  'a token outside': ('llama', {'eos_token_id': 61}, 'eos_token_id=61'),
}


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """A folder of each architecture, once."""
  known = {}

  def of(case):
    if case not in known:
      keys, state = architectures.make(case)
      path = tmp_path_factory.mktemp('theirs') / 'in'
      known[case] = folders.write(path, keys, state), keys
    return known[case]

  return of


@pytest.mark.parametrize('name', WRONG)
def test_a_wrong_value_is_refused_by_file_and_key_at_once(name, made):
  case, changed, names = WRONG[name]
  folder, keys = made(case)
  (folder / 'config.json').write_text(json.dumps(keys | changed))
  begin = time.process_time()
  with pytest.raises(errors.InputError, match=f'config.json: {names}'):
    folders.read(folder)
  assert time.process_time() - begin < 10


NEWER = (
  *('qwen3_5', 'qwen3_5_moe', 'granite', 'bamba', 'lfm2', 'lfm2_moe'),
  *('falcon_h1', 'jamba', 'nemotron_h'),
)


@pytest.mark.parametrize('case', NEWER)
def test_values_of_other_types_are_refused(case, tmp_path):
  keys, _ = architectures.make(case)
  folder = folders.write(tmp_path / 'in', keys, {})
  for n, name in enumerate(sorted(keys)):
    for value in hostile.HOSTILE[n % 6 :: 6]:
      (folder / 'config.json').write_text(json.dumps(keys | {name: value}))
      with pytest.raises(errors.InputError):
        folders.read(folder)


def test_what_is_outside_of_a_folder_stays_there(tmp_path):
  (tmp_path / 'secret').write_text('{"password": "x"}')
  folder = folders.write(tmp_path / 'in', folders.LLAMA, folders.llama())
  for name in ('generation_config.json', 'special_tokens_map.json'):
    path = folder / name
    path.symlink_to(tmp_path / 'secret')
    with pytest.raises(
      errors.InputError, match=f'{name}: it links to .*copied'
    ):
      folders.read(folder)
    path.unlink()
  path.write_bytes(b'{"a": "\xe9"}')
  with pytest.raises(errors.InputError, match='special.*byte 7 is not UTF-8'):
    folders.read(folder)
  path.unlink()
  # A run whose kept files lead elsewhere isn't exported with them.
  bundle_lib.write(folders.read(folder), tmp_path / 'run')
  kept = tmp_path / 'run' / bundle_lib.KEPT / 'generation_config.json'
  kept.symlink_to(tmp_path / 'secret')
  with pytest.raises(errors.InputError, match='generation_config.json: it li'):
    bundle_lib.read(tmp_path / 'run', 0)


def test_tensors_are_of_the_folder_and_no_pipe(tmp_path):
  folder = folders.write(tmp_path / 'in', folders.LLAMA, folders.llama())
  path = folder / 'model.safetensors'
  path.rename(tmp_path / 'theirs.safetensors')
  path.symlink_to(tmp_path / 'theirs.safetensors')
  with pytest.raises(errors.InputError, match='it links to .*theirs'):
    folders.read(folder)
  for target in ('/dev/zero', '/dev/urandom'):
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(errors.InputError, match='model.safe.*it is a device'):
      folders.read(folder)


@pytest.mark.parametrize(
  ('added', 'says'),
  (
    ({'added_tokens': 3}, 'added_tokens must be a list'),
    ({'added_tokens': [3]}, r'added_tokens\[0\] must be an object'),
    ({'added_tokens': [{'id': 1}]}, 'content must be a text'),
    ({'added_tokens': [{'id': -1, 'content': 'a'}]}, 'id must be an id'),
    ({'added_tokens': [{'id': 61, 'content': 'a'}]}, 'id must be an id'),
    ({'added_tokens': [{'id': True, 'content': 'a'}]}, 'id must be an id'),
    ({'decoder': []}, 'decoder must be an object'),
    ({'decoder': {'type': 3}}, 'decoder.type must be a text'),
    (
      {'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [3]}},
      r'pre_tokenizer.pretokenizers\[0\] must be an object',
    ),
    ({'model': {'unk_token': []}}, 'unk_token must be a text'),
    ({'model': []}, 'model must be an object'),
  ),
)
def test_a_tokenizer_has_the_types_that_are_read(added, says, tmp_path):
  folder = folders.write(tmp_path / 'in', folders.LLAMA, folders.llama())
  spec = {'model': {'type': 'BPE', 'vocab': {}, 'merges': []}} | added
  (folder / 'tokenizer.json').write_text(json.dumps(spec))
  with pytest.raises(errors.InputError, match=f'tokenizer.json.*{says}'):
    folders.read(folder)


@pytest.mark.parametrize(
  'template', (3, [3], [{'name': 3}], [{'name': 'default', 'template': 3}])
)
def test_a_template_is_a_text_or_several_by_name(template, tmp_path):
  folder = folders.write(tmp_path / 'in', folders.LLAMA, folders.llama())
  spec = {'model': {'type': 'BPE', 'vocab': {}, 'merges': []}}
  (folder / 'tokenizer.json').write_text(json.dumps(spec))
  (folder / 'tokenizer_config.json').write_text(
    json.dumps({'chat_template': template})
  )
  with pytest.raises(errors.InputError, match=r'tokenizer_config.json: \w+='):
    folders.read(folder)


def test_a_long_value_is_cut_in_the_message():
  keys = keys_lib.Keys('x.json', {'a': [['x' * 1000] * 1000] * 1000})
  with pytest.raises(errors.InputError) as caught:
    keys.whole('a')
  assert len(str(caught.value)) < 300
