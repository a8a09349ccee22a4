"""Folders of transformers: what any architecture has, on a small Llama."""

import dataclasses
import json
import re

import ml_dtypes
import numpy as np
import pytest
import tokenizers

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import turns
from rnn_jax.inference import generate
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.interop.formats import hf
from rnn_jax.interop.formats.hf import checkpoint
from rnn_jax.runs import bundle as bundle_lib
from tests.interop.formats.hf import folders
from tests.support import bundles
from tests.support import chats


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  path = tmp_path_factory.mktemp('hf') / 'llama'
  return folders.write(path, folders.LLAMA, folders.llama())


def test_shards_and_one_file_are_the_same_model_and_come_back(folder, tmp_path):
  bundle = folders.read(folder)
  sharded = tmp_path / 'sharded'
  folders.write(sharded, folders.LLAMA, folders.llama(), shards=3)
  bundles.assert_same(folders.read(sharded), bundle)
  (folder / 'generation_config.json').write_text('{"eos_token_id": 5}')
  bundle_lib.write(folders.read(folder), tmp_path / 'run')
  back = bundle_lib.read(tmp_path / 'run', 'latest')
  out = folders.export(back, tmp_path / 'out', max_shard_size='4KB')
  folders.assert_same(out, folder)
  assert len([*out.glob('*.safetensors')]) > 2
  assert (out / 'generation_config.json').read_text() == '{"eos_token_id": 5}'
  theirs = json.loads((out / 'config.json').read_text())
  assert {**theirs, **folders.LLAMA} == theirs
  bundles.assert_same(folders.read(out), bundle)


def test_a_file_is_read_in_parts_of_limited_size(folder, monkeypatch):
  bundle, opened = folders.read(folder), []
  read = tensors.open_safe

  def count(path):
    opened.append(path)
    return read(path)

  monkeypatch.setattr(checkpoint, 'MAPPED', 1000)
  monkeypatch.setattr(tensors, 'open_safe', count)
  bundles.assert_same(folders.read(folder), bundle)
  assert len(opened) > 10


def test_a_model_of_ours_is_described_or_what_it_has_else_is_named(
  folder, tmp_path
):
  bundle = dataclasses.replace(folders.read(folder), kept={})
  out = folders.export(bundle, tmp_path / 'out')
  bundles.assert_same(folders.read(out), bundle)
  for keys, named in (
    ({'top_k': 3}, r'cell\.top_k=3, not 0 \(llama\)'),
    ({'heads': 8, 'rotary_width': 4}, r'cell\.rotary_width=4, not 0'),
  ):
    cell = dataclasses.replace(bundle.config.cell, **keys)
    config = dataclasses.replace(bundle.config, cell=cell)
    other = dataclasses.replace(bundle, config=config)
    with pytest.raises(errors.InputError, match=named):
      folders.export(other, tmp_path / 'other')
  published = bundles.make(bundles.raw_published())
  with pytest.raises(errors.InputError, match=r"the cells \['simple_rnn'\]"):
    folders.export(published, tmp_path / 'other')
  assert not (tmp_path / 'other').exists()


def test_as_many_heads_of_keys_as_of_queries_have_two_names(tmp_path):
  state = folders.llama()
  for name in [x for x in state if 'k_proj' in x or 'v_proj' in x]:
    state[name] = np.concatenate([state[name], 2 * state[name]])
  keys = folders.LLAMA | {'num_key_value_heads': 4}
  bundle = folders.read(folders.write(tmp_path / 'given', keys, state))
  cell = dataclasses.replace(bundle.config.cell, kv_heads=0)
  config = dataclasses.replace(bundle.config, cell=cell)
  same = dataclasses.replace(bundle, config=config, kept={})
  out = folders.export(same, tmp_path / 'out')
  folders.assert_same(out, tmp_path / 'given')


def test_every_wrong_tensor_is_named(tmp_path):
  state = folders.llama(layers=6)
  names = [name for name in state if name.endswith('.up_proj.weight')]
  for name in names:
    state[name] = state[name].T
  gone = [name for name in state if name.endswith('q_proj.weight')]
  for name in gone:
    del state[name]
  state['model.extra'] = np.zeros(3, np.float32)
  state['model.layers.0.self_attn.rotary_emb.inv_freq'] = np.zeros(
    3, np.float32
  )
  keys = folders.LLAMA | {'num_hidden_layers': 6}
  folder = folders.write(tmp_path / 'model', keys, state)
  with pytest.raises(errors.InputError) as caught:
    folders.read(folder)
  message = str(caught.value)
  for name in names:
    assert f'{name}: (12, 20), expected (20, 12)' in message
  for name in gone:
    assert f'{name}: missing, expected (24, 12)' in message
  assert 'model.extra: (3,), expected none' in message
  assert 'inv_freq' not in message


def test_damaged_and_lacking_files_are_named(folder, tmp_path):
  path = folders.write(tmp_path / 'a', folders.LLAMA, folders.llama(), shards=2)
  (path / 'model-00002-of-00002.safetensors').unlink()
  with pytest.raises(errors.InputError, match='has no model-00002-of-00002.sa'):
    folders.read(path)
  index = path / 'model.safetensors.index.json'
  index.write_text('{"weight_map": {"a": "../a.safetensors"}}')
  with pytest.raises(errors.InputError, match='not a file name'):
    folders.read(path)
  index.write_text('{}')
  with pytest.raises(errors.InputError, match='no weight_map'):
    folders.read(path)
  index.unlink()
  with pytest.raises(errors.InputError, match='no model.safetensors, and no'):
    folders.read(path)
  (path / 'model.safetensors').write_bytes(b'x' * 20)
  with pytest.raises(errors.InputError, match="isn't a valid .safetensors"):
    folders.read(path)
  state = folders.llama()
  state['model.norm.weight'] = np.ones(12, np.int32)
  folders.write(path, folders.LLAMA, state)
  with pytest.raises(errors.InputError, match='norm.weight is I32: only'):
    folders.read(path)


@pytest.mark.parametrize(
  'keys, named',
  [
    ({'model_type': 'bert'}, r"'bert': only \[.*'llama'"),
    ({'hidden_size': None}, 'hidden_size=None: give a whole number'),
    ({'hidden_act': 'relu'}, "hidden_act='relu': only .*'silu'"),
    ({'rms_norm_eps': '1'}, "rms_norm_eps='1': give a number"),
    ({'tie_word_embeddings': 1}, 'tie_word_embeddings=1: give true or'),
    ({'rope_scaling': {'type': 'longrope'}}, "rope_type='longrope': only"),
    ({'rope_scaling': {'type': 'yarn'}}, 'factor=None: give a number'),
  ],
)
def test_another_model_is_refused_by_name(folder, tmp_path, keys, named):
  other = folders.write(tmp_path / 'a', folders.LLAMA | keys, {})
  with pytest.raises(errors.InputError, match=named):
    folders.read(other)


def test_tensors_keep_their_dtypes(tmp_path):
  state = folders.llama()
  half = {name: x.astype(ml_dtypes.bfloat16) for name, x in state.items()}
  half['model.norm.weight'] = state['model.norm.weight']  # a few often aren't
  keys = folders.LLAMA | {'torch_dtype': 'bfloat16'}
  folder = folders.write(tmp_path / 'half', keys, half)
  bundle = folders.read(folder)
  bundle_lib.write(bundle, tmp_path / 'run')
  bundle = bundle_lib.read(tmp_path / 'run', 'latest')
  out = folders.export(bundle, tmp_path / 'out')
  assert folders.dtypes(out) == folders.dtypes(folder)
  folders.assert_same(out, folder)
  theirs = json.loads((out / 'config.json').read_text())
  assert theirs['dtype'] == 'bfloat16' and 'torch_dtype' not in theirs
  names = {'README.md', 'config.json', 'model.safetensors'}
  assert {x.name for x in out.iterdir()} == names
  wide = tmp_path / 'wide'
  hf.write(bundle, request.Target(wide, dtype='float32'))
  assert {*folders.dtypes(wide).values()} == {'F32'}
  folders.assert_same(wide, folder)
  params = bundle.params | {'norm': {'scale': np.full(12, 1e5, np.float32)}}
  bundle = dataclasses.replace(bundle, params=params)
  with pytest.raises(errors.InputError, match='up to 1e.05, too large for fl'):
    hf.write(bundle, request.Target(tmp_path / 'f16', dtype='float16'))
  assert not (tmp_path / 'f16').exists()


def test_a_config_adds_data_and_training(folder):
  raw = config_lib.default()
  raw.data.length = 16
  raw.optimizer.learning_rate = 0.5
  config = folders.read(folder, config=config_lib.parse(raw)).config
  assert config.optimizer.learning_rate == 0.5
  assert config.cell.window == 16


def make_tokenizer(path):
  """A byte-level BPE with special tokens in the middle of the ids."""
  made = tokenizers.Tokenizer(tokenizers.models.BPE())
  made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=300,
    special_tokens=['<s>', '</s>', '<|user|>'],
    initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
  )
  made.train_from_iterator(['low lower lowest; new newer newest'] * 9, trainer)
  made.save(str(path / 'tokenizer.json'))
  return made


def test_its_own_tokenizer(tmp_path):
  folder = tmp_path / 'model'
  state = folders.llama()
  for name in ('lm_head.weight', 'model.embed_tokens.weight'):
    state[name] = np.ones((310, 12), np.float32)
  keys = folders.LLAMA | {'vocab_size': 310, 'eos_token_id': [1, 7]}
  folders.write(folder, keys, state)
  theirs = make_tokenizer(folder)
  bundle = folders.read(folder)
  ours = bundle.tokenizer
  assert bundle.config.data.tokenizer == 'pretrained'
  assert (ours.size, ours.boundary, ours.lossless) == (310, 1, True)
  for text in ('<|user|>low lowest', '  two\n\n déjà vu 中', ''):
    ids = ours.encode(text)
    assert ids.tolist() == theirs.encode(text).ids
    assert ours.decode(ids) == text
  assert 2 in ours.encode('<|user|>')
  text = 'a</s><|user|>'
  ids = ours.encode(text)
  assert not {1, 2} & {*ids.tolist()} and ours.decode(ids) == text
  assert ours.decode([1, 305]) == ''
  bundle_lib.write(bundle, tmp_path / 'run')
  back = bundle_lib.read(tmp_path / 'run', 'latest')
  out = folders.export(back, tmp_path / 'out')
  same = [json.loads((x / 'tokenizer.json').read_text()) for x in (out, folder)]
  assert same[0] == same[1]
  assert json.loads((out / 'config.json').read_text())['eos_token_id'] == [1, 7]


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path):
  folder = folders.write(tmp_path / 'a', folders.LLAMA, folders.llama())
  make_tokenizer(folder)
  with pytest.raises(errors.InputError, match='has id .*, and the model 61'):
    folders.read(folder)
  (folder / 'tokenizer.json').write_text('{"model": 3}')
  with pytest.raises(errors.InputError, match="isn't a tokenizer that can"):
    folders.read(folder)


def test_pieces_of_sentencepiece_are_bytes(tmp_path):
  vocabulary = {'<unk>': 0, '</s>': 1, '\u2581a': 2, 'a': 3, '<0x0A>': 4}
  model = tokenizers.models.BPE(
    vocabulary, [], unk_token='<unk>', byte_fallback=True
  )
  made = tokenizers.Tokenizer(model)
  made.add_special_tokens(['<unk>', '</s>'])
  folder = folders.write(tmp_path / 'a', folders.LLAMA, folders.llama())
  made.save(str(folder / 'tokenizer.json'))
  ours = folders.read(folder, config=None).tokenizer
  assert ours.decode([2, 3, 4, 2]) == ' aa\n a'
  assert not ours.lossless and ours.unknown == 0
  with pytest.raises(errors.InputError, match=re.escape("'zq'")):
    ours.encode('zq')


def write_chats(folder, **tokenizer_config):
  """Writes a folder with the tokenizer of chats.py."""
  state = folders.llama()
  for name in ('lm_head.weight', 'model.embed_tokens.weight'):
    state[name] = np.ones((chats.SIZE, 12), np.float32)
  keys = folders.LLAMA | {'vocab_size': chats.SIZE, 'eos_token_id': 257}
  folders.write(folder, keys, state)
  (folder / 'tokenizer.json').write_text(json.dumps(chats.spec()))
  given = {'bos_token': {'content': '<s>'}, 'eos_token': '</s>'}
  given |= {'pad_token': None} | tokenizer_config
  (folder / 'tokenizer_config.json').write_text(json.dumps(given))
  return folder


def test_a_chat_template_frames_the_turns_of_a_model_that_chats(tmp_path):
  listed = [{'name': 'default', 'template': chats.LLAMA3}]
  folder = write_chats(tmp_path / 'a', chat_template=listed)
  bundle = folders.read(folder)
  said = turns.alternate(['hi', 'hello', 'so'])
  want = '<s>' + ''.join(
    f'<|start|>{role}<|end|>\n\n{text}<|eot|>' for role, text in said
  )
  want = chats.ids(want + '<|start|>assistant<|end|>\n\n')
  bundle_lib.write(bundle, tmp_path / 'run')
  generator = generate.Generator.from_workdir(tmp_path / 'run')
  assert generator.prompts.asks
  assert generator.prompts.framing.prompt(said).tolist() == want
  assert generator.tokenizer.boundary == chats.ids('<|eot|>')[0]
  out = folders.export(bundle_lib.read(tmp_path / 'run', 0), tmp_path / 'out')
  for name in ('tokenizer_config.json', 'tokenizer.json', 'config.json'):
    a, b = (json.loads((x / name).read_text()) for x in (folder, out))
    assert {**b, **a} == b
  assert not (out / 'chat_template.jinja').exists()
  # A model without the files that it came with, as one that was fine-tuned.
  tuned = dataclasses.replace(bundle, kept={})
  out = folders.export(tuned, tmp_path / 'tuned')
  assert (out / 'chat_template.jinja').read_text() == chats.LLAMA3
  bundles.assert_same(folders.read(out), bundle)


def test_a_template_of_its_own_file_comes_first(tmp_path):
  folder = write_chats(tmp_path / 'a', chat_template=chats.LLAMA3)
  path = folder / 'chat_template.jinja'
  path.write_text(chats.CHATML)
  bundle = folders.read(folder)
  assert bundle.tokenizer.template.text == chats.CHATML
  assert bundle.tokenizer.template.tokens == {}  # it writes none of them
  config = config_lib.parse(config_lib.default())
  given = folders.read(folder, config=config)
  assert given.config.task.name == 'language_modeling'
  assert given.tokenizer.template is None and given.tokenizer.boundary == 257
  raw = config_lib.default(task='dialogue')
  given = folders.read(folder, config=config_lib.parse(raw))
  assert given.tokenizer.spec() == bundle.tokenizer.spec()
  path.write_text(chats.FORGETS)
  with pytest.raises(
    errors.InputError, match=f'{folder}: .*turn 1 reads otherwise.*or remove it'
  ):
    folders.read(folder)
