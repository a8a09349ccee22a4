"""Model folders of transformers, and of GPT-2, that a stranger wrote.

Each file of a folder is replaced by what isn't a file, by links that lead out
of it, and by what is too large or isn't UTF-8; each key of each architecture's
config.json gets values of another type or size. Nothing of what lies outside of
a folder may be in the run that it becomes.
"""

import json
import os
import pathlib
import socket
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np

from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop import tensors as tensors_lib
from rnn_jax.interop.formats.hf import architectures
from tests.faults import base
from tests.faults import commands

SECRET = 'the secret of the user'
SPARSE = 3 * 2**30  # bytes, of which none is on the disk
ENTRIES = 61
MODEL = {  # of all
  'vocab_size': ENTRIES,
  'hidden_size': 12,
  'intermediate_size': 20,
  'num_hidden_layers': 2,
  'eos_token_id': 5,
}
HEADS = {'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 6}
ROTARY = {
  'max_position_embeddings': 32,
  'rope_parameters': {
    'rope_type': 'yarn',
    'rope_theta': 100.0,
    'factor': 4.0,
    'original_max_position_embeddings': 40,
  },
}
EXPERTS = {'num_experts': 4, 'num_experts_per_tok': 2}
KINDS = ['linear_attention', 'full_attention']
ARCHITECTURES: dict[str, dict[str, Any]] = {
  'llama': HEADS | ROTARY | {'hidden_act': 'silu', 'rms_norm_eps': 1e-5},
  'mistral': HEADS | ROTARY | {'sliding_window': 5},
  'qwen2': HEADS | ROTARY | {'layer_types': ['full_attention'] * 2},
  'qwen3': HEADS | ROTARY | {'use_sliding_window': False},
  'mixtral': HEADS
  | ROTARY
  | {'num_local_experts': 4, 'num_experts_per_tok': 2},
  'qwen3_moe': HEADS
  | EXPERTS
  | {'moe_intermediate_size': 8, 'mlp_only_layers': []},
  'mamba': {
    'expand': 2,
    'state_size': 5,
    'time_step_rank': 3,
    'conv_kernel': 3,
  },
  'mamba2': {
    'num_heads': 4,
    'head_dim': 6,
    'expand': 2,
    'state_size': 5,
    'n_groups': 2,
    'conv_kernel': 3,
    'time_step_limit': [0.0, float('inf')],
  },
  'xlstm': {
    'num_heads': 2,
    'qk_dim_factor': 0.5,
    'ffn_proj_factor': 1.6,
    'ffn_round_up_to_multiple_of': 4,
    'gate_soft_cap': 2.0,
  },
  'gated_deltanet': {'num_heads': 2, 'head_dim': 6, 'conv_size': 3},
  'delta_net': {'num_heads': 2, 'expand_k': 1.0, 'expand_v': 0.5},
  'gla': {'num_heads': 2, 'expand_k': 0.5, 'expand_v': 1.5},
  'rwkv7': {'head_dim': 6, 'value_dim': [12, 12], 'decay_low_rank_dim': 5},
  'recurrent_gemma': {
    'num_attention_heads': 3,
    'lru_width': 12,
    'attention_window_size': 6,
    'block_types': ['recurrent', 'attention'],
    'partial_rotary_factor': 0.5,
  },
  'qwen3_next': HEADS
  | EXPERTS
  | {
    'head_dim': 8,
    'layer_types': KINDS,
    'linear_num_key_heads': 2,
    'linear_num_value_heads': 4,
    'moe_intermediate_size': 8,
    'shared_expert_intermediate_size': 8,
  },
  'kimi_linear': {
    'num_attention_heads': 2,
    'linear_attn_config': {
      'head_dim': 5,
      'num_heads': 2,
      'kda_layers': [1],
      'full_attn_layers': [2],
    },
    'mlp_layer_types': ['dense', 'sparse'],
    'num_experts': 4,
    'num_experts_per_token': 2,
    'moe_intermediate_size': 8,
  },
}
HOSTILE = (
  *(None, True, -1, 0, 1.5, 1e308, float('nan'), float('inf'), 3_000_000),
  *(10**8, 2**31, 2**63, 10**400, '', 'x', [], {}, [None], ['x'], [[1]]),
  {'x': 1},
)
FILES = (
  'config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'generation_config.json',
  'special_tokens_map.json',
  'model.safetensors',
  'model.safetensors.index.json',
)
OF_GPT2 = ('config.json', 'vocab.json', 'merges.txt', 'model.safetensors')
GPT2 = {
  'model_type': 'gpt2',
  'vocab_size': ENTRIES,
  'n_positions': 16,
  'n_embd': 12,
  'n_layer': 2,
  'n_head': 2,
}


def folders(shared: base.Base) -> Iterator[commands.Attempt]:
  """Converts folders in which a file isn't one, or leads elsewhere."""
  for model, keys, names in (('', None, FILES), ('gpt2: ', GPT2, OF_GPT2)):
    for name in names:
      for kind, write in SPECIAL.items():
        yield commands.Attempt(
          f'convert --format=hf: {model}{name} is {kind}',
          'convert',
          _with(name, write, keys),
          says=f'{name}|it has no|it has none',
          check=keeps_out,
        )
  for name, target in (
    ('of the hub', '../../blobs/{name}'),
    ('to another revision', '../other/{name}'),
    ('out of the hub', '../../../{name}'),
  ):
    yield commands.Attempt(
      f'convert --format=hf: links {name}',
      'convert',
      _linked(target),
      expects='success' if name == 'of the hub' else 'refusal',
      says='links to',
      check=keeps_out,
    )
  del shared


def values(shared: base.Base) -> Iterator[commands.Attempt]:
  """Converts folders whose files have values of another type or size."""
  for model_type, own in ARCHITECTURES.items():
    keys = MODEL | own | {'model_type': model_type}
    names = sorted(keys)
    for n, name in enumerate(names):
      value = HOSTILE[(n + len(model_type)) % len(HOSTILE)]
      yield _changed(f'{model_type}: {name}', keys, name, value)
    for name in ('rope_parameters', 'linear_attn_config'):
      for inner in own.get(name, {}):
        for value in HOSTILE[len(inner) % 7 :: 7]:
          section = own[name] | {inner: value}
          yield _changed(
            f'{model_type}: {name}.{inner}', keys, name, section, value
          )
  for name, value in _sizes():
    keys = MODEL | ARCHITECTURES['llama'] | {'model_type': 'llama'}
    yield _changed(f'a size: {name}', keys, name, value, expects='refusal')
  for name in GPT2:
    for value in HOSTILE[len(name) % 5 :: 5]:
      yield _changed(f'gpt2: {name}', GPT2, name, value)
  for name, file, content in (*_tokenizers(), *_indices()):
    yield commands.Attempt(
      f'convert --format=hf: {file}: {name}',
      'convert',
      _with(file, _text(content)),
      says=f'{file}|in/config.json',
      check=keeps_out,
    )
  del shared


def _sizes():
  """Yields (key of Llama, a value that can't be)."""
  for name in {**MODEL, **HEADS, 'max_position_embeddings': 0}:
    for value in (3_000_000 if 'layers' in name else 10**8, 2**31):
      yield name, value


def _tokenizers():
  """Yields (name, file, its content)."""
  for name, changed in (
    ('a list', {'model': []}),
    ('no vocabulary', {'model': {'type': 'BPE'}}),
    ('an unknown token of a list', {'model': TOKENIZER | {'unk_token': []}}),
    ('ids of texts', {'model': TOKENIZER | {'vocab': {'a': 'b'}}}),
    ('an id of 2^31', {'model': TOKENIZER | {'vocab': {'a': 2**31}}}),
    ('an id of -1', {'model': TOKENIZER | {'vocab': {'a': -1}}}),
    ('added tokens of a number', {'added_tokens': 3}),
    ('an added token of a number', {'added_tokens': [3]}),
    ('an added token without an id', {'added_tokens': [{'content': 'a'}]}),
    ('an added id of -1', {'added_tokens': [{'id': -1, 'content': 'a'}]}),
    ('an added id of 2^63', {'added_tokens': [{'id': 2**63, 'content': 'a'}]}),
    ('an added list', {'added_tokens': [{'id': 1, 'content': []}]}),
    ('a lone surrogate', {'added_tokens': [{'id': 1, 'content': '\ud800'}]}),
    ('a decoder of a list', {'decoder': []}),
    ('a decoder of a number', {'decoder': {'type': 3}}),
    ('a decoder of numbers', {'decoder': {'type': 'Sequence', 'x': [3]}}),
    ('a normalizer of a text', {'normalizer': 'x'}),
    ('words of numbers', {'pre_tokenizer': {'type': 3}}),
  ):
    content = json.dumps({'model': TOKENIZER} | changed)
    yield name, 'tokenizer.json', content
  for name, template in (
    ('a number', 3),
    ('a list of numbers', [3]),
    ('a number in a list', [{'name': 'default', 'template': 3}]),
    ('an object', {}),
  ):
    content = json.dumps({'chat_template': template})
    yield f'a template of {name}', 'tokenizer_config.json', content
  yield 'a list', 'tokenizer_config.json', '[]'


def _indices():
  """Yields (name, file, its content)."""
  for name, content in (
    ('a list', []),
    ('no map', {}),
    ('a map of a list', {'weight_map': []}),
    ('a map to numbers', {'weight_map': {'a': 3}}),
    ('a map to lists', {'weight_map': {'a': ['x']}}),
    ('a map to a parent', {'weight_map': {'a': '../model.safetensors'}}),
    ('a map to a root', {'weight_map': {'a': '/dev/zero'}}),
    ('a map to nothing', {'weight_map': {'a': ''}}),
    ('a map to this folder', {'weight_map': {'a': '.'}}),
    ('a map to its config', {'weight_map': {'a': 'config.json'}}),
    ('100,000 files', {'weight_map': {f'{n}': f'{n}.x' for n in range(10**5)}}),
  ):
    yield name, 'model.safetensors.index.json', json.dumps(content)


def _changed(name, keys, key, value, shown=..., expects='either'):
  shown = value if shown is ... else shown
  content = json.dumps(keys | {key: value})
  return commands.Attempt(
    f'convert --format=hf: {name}={keys_lib.shown(shown)}',
    'convert',
    _with('config.json', _text(content), keys),
    expects=expects,
    # A size that may be is refused for the tensors that it needs.
    says='config.json: .*=|name different tensors',
    check=keeps_out,
  )


def _with(name, write, keys=None):
  """Returns what makes the arguments: a folder in which a file is another."""

  def arguments(folder):
    write_secret(folder)
    path = write_folder(folder / 'in', keys)
    (path / name).unlink(missing_ok=True)
    write(path / name)
    return base.convert(folder, path, 'hf')

  return arguments


def _linked(target):
  """Returns what makes the arguments: a revision in the hub's cache."""

  def arguments(folder):
    hub = folder / 'models--theirs--model'
    for made in (hub / 'blobs', hub / 'snapshots' / 'other', folder / 'out'):
      made.mkdir(parents=True)
      write_folder(made)
    for path in (folder / 'out').iterdir():
      (folder / path.name).write_bytes(path.read_bytes())
    path = hub / 'snapshots' / '5d1'
    path.mkdir()
    for name in os.listdir(hub / 'blobs'):
      (path / name).symlink_to(target.format(name=name))
    return base.convert(folder, path, 'hf')

  return arguments


def write_folder(
  path: pathlib.Path, keys: dict[str, Any] | None = None
) -> pathlib.Path:
  """Writes a small folder of a model, with tensors of zeros."""
  path.mkdir(exist_ok=True)
  default = MODEL | ARCHITECTURES['llama'] | {'model_type': 'llama'}
  keys = keys or default
  (path / 'config.json').write_text(json.dumps(keys))
  tensors_lib.write(path / 'model.safetensors', _zeros(keys))
  if keys['model_type'] == 'gpt2':
    entries = {chr(33 + n): n for n in range(ENTRIES - 1)}
    entries['<|endoftext|>'] = ENTRIES - 1
    (path / 'vocab.json').write_text(json.dumps(entries))
    (path / 'merges.txt').write_text('')
    return path
  spec = {'model': TOKENIZER, 'added_tokens': []}
  (path / 'tokenizer.json').write_text(json.dumps(spec))
  (path / 'tokenizer_config.json').write_text('{"eos_token": "f"}')
  (path / 'generation_config.json').write_text('{"eos_token_id": 5}')
  (path / 'special_tokens_map.json').write_text('{}')
  return path


def _zeros(keys):
  from rnn_jax import config as config_lib

  own = keys_lib.Keys('config.json', keys)
  architecture = architectures.find(own)
  options = architecture.options(own)
  raw = config_lib.default(
    options.get('model.cells') or options['model.cell'], layout='packed'
  )
  config_lib.override(raw, options)
  raw.data.length = keys.get('n_positions', 32)
  raw.sample.new_tokens = 4
  listed = architectures.tensors(
    architecture, config_lib.parse(raw), keys['vocab_size']
  )
  stored = table.stored(listed)
  return {name: np.zeros(x.shape, np.float32) for name, x in stored.items()}


def write_secret(folder: pathlib.Path) -> None:
  """Writes a file of the user's, beside a folder of a stranger."""
  (folder / 'secret').write_text(json.dumps({'x': SECRET}))


def keeps_out(folder: pathlib.Path, ended: commands.Ended) -> commands.Defect:
  """Nothing from outside of a folder is in the run, or in the output."""
  for path in (folder / 'run').rglob('*'):
    if path.is_symlink():
      return 'lost', f'{path.name} leads out of the run'
  return keeps_secret(folder, ended)


def keeps_secret(
  folder: pathlib.Path, ended: commands.Ended
) -> commands.Defect:
  """The file of the user's is as it was, and no other file has its content."""
  own = folder / 'secret'
  if own.exists() and own.read_text(errors='replace') != json.dumps(
    {'x': SECRET}
  ):
    return 'lost', 'the secret was changed'
  if SECRET in ended.out + ended.err:
    return 'lost', 'the secret is in the output'
  for path in (folder / 'run').rglob('*'):
    read = path.is_file() and not path.is_symlink()
    if read and SECRET.encode() in path.read_bytes():
      return 'lost', f'{path.name} has the secret'
  return None


def _socket(path):
  here = os.open(path.parent, os.O_RDONLY)  # names of sockets are short
  try:
    with socket.socket(socket.AF_UNIX) as made:
      made.bind(f'/proc/self/fd/{here}/{path.name}')
  finally:
    os.close(here)


def _link(target):
  return lambda path: path.symlink_to(target)


def _sparse(path):
  with path.open('wb') as file:
    file.truncate(SPARSE)


def _text(content):
  return lambda path: path.write_text(content)


SPECIAL: dict[str, Callable[[pathlib.Path], object]] = {
  'a pipe': os.mkfifo,
  'a socket': _socket,
  'a folder': pathlib.Path.mkdir,
  'a link to zeros': _link('/dev/zero'),
  'a link to random bytes': _link('/dev/urandom'),
  'a link to a terminal': _link('/dev/ptmx'),
  'a link to a secret': _link('../secret'),
  'a link to the process': _link('/proc/self/environ'),
  'a sparse file of 3 GiB': _sparse,
  'not UTF-8': lambda path: path.write_bytes(b'{"a": "\xe9\xff"}'),
}
LETTERS = [chr(97 + n) for n in range(26)]
TOKENIZER = {
  'type': 'BPE',
  'vocab': {letter: n for n, letter in enumerate(LETTERS)},
  'merges': [],
}
