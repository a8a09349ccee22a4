"""Files of packed parameters: the bits of packing, or a reason."""

import json
import shutil

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import generate
from rnn_jax.inference import model as model_lib
from rnn_jax.models import packed_weights
from rnn_jax.ops import products
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import packed_file
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import mapped_tensors
from tests.support import bundles
from tests.support import tiny

MODELS = {
  'gates': {},
  'a tied hybrid': {
    'model.cells': ('simple_rnn', 'attention'),
    'model.layers': 2,
    'model.tied': True,
    'model.block': 'residual',
    'model.mlp_width': 32,
  },
  'experts': {
    'model.block': 'residual',
    'model.mlp_width': 8,
    'model.experts.count': 4,
  },
}


def build(name, seed=0):
  raw = tiny.raw_config('gone')
  config_lib.override(raw, MODELS[name])
  return bundles.make(raw, tokenizer_lib.Bytes(), seed)


def packed(bundle, weights):
  params = jax.device_put(bundle.params)
  params = jax.device_get(packed_weights.panels(params, weights))
  own = bundle.config, bundle.tokenizer, params, bundle.step
  return bundle_lib.Bundle(*own)


@pytest.fixture(scope='module', name='bundle')
def _bundle():
  return build('gates')


@pytest.fixture(scope='module', name='written')
def _written(bundle, tmp_path_factory):
  """A run with a file in 8 bits."""
  folder = tmp_path_factory.mktemp('written') / 'run'
  bundle_lib.write(bundle, folder)
  bundle_lib.write_packed(packed(bundle, 'int8'), folder, 'int8')
  return folder


@pytest.fixture(name='run')
def _run(written, tmp_path):
  """A copy of that run, which a test may change."""
  return shutil.copytree(written, tmp_path / 'run')


def equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def forget(run):
  """Leaves nothing of a checkpoint but its seal."""
  for path in (run / 'checkpoints' / '0').iterdir():
    if path.is_dir():
      shutil.rmtree(path)


# Models differ in the paths of their parameters, formats in a matrix.
@pytest.mark.parametrize(
  ('name', 'weights'),
  (
    *(('gates', weights) for weights in products.FORMATS),
    ('a tied hybrid', 'int4'),
    ('a tied hybrid', 'float32'),
    ('experts', 'int8'),
    ('experts', 'bfloat16'),
  ),
)
def test_a_file_has_the_bits_of_packing(name, weights, tmp_path, monkeypatch):
  monkeypatch.setattr(packed_weights, 'LARGE', 300)
  bundle = build(name)
  wanted = generate.Generator.from_bundle(bundle, weights)
  bundle_lib.write(bundle, tmp_path / 'run')
  bundle_lib.write_packed(packed(bundle, weights), tmp_path / 'run', weights)
  forget(tmp_path / 'run')  # so that nothing else can be read
  got = generate.Generator.from_workdir(tmp_path / 'run', 'best', weights)
  if products.lacking_native() and weights == 'float32':
    equal(packed_weights.unpack(got.params), wanted.params)
  else:
    assert packed_weights.formats(got.params) == {weights}
    equal(got.params, wanted.params)


@pytest.mark.native
def test_parameters_are_the_pages_of_the_file(run, bundle):
  got = bundle_lib.read(run, 'best', weights='int8')
  pages = {x.ctypes.data for x in jax.tree.leaves(got.params)}
  generator = generate.Generator.from_bundle(got, 'int8')
  table = generator.params['embedding']['embedding'].arrays[0]
  assert table.unsafe_buffer_pointer() in pages
  # Of stacked layers, each is a part of the pages.
  stacked = got.params['stack']['blocks']['cell']['output']['kernel'].arrays[0]
  own = generator.params['layer_1']['cell']['output']['kernel'].arrays[0]
  place = own.unsafe_buffer_pointer() - stacked.ctypes.data
  assert place == stacked[1:].ctypes.data - stacked.ctypes.data
  # A model holds one copy for all that it is asked.
  model = model_lib.Model(bundle, 'int8')
  held = model.bundle.params['embedding']['embedding'].arrays[0].ctypes.data
  for params in (model.generator.params, model.scorer._params):
    own = params['embedding']['embedding'].arrays[0]
    assert own.unsafe_buffer_pointer() == held


def test_every_question_is_answered_from_the_file(run, bundle, tmp_path):
  wanted = model_lib.Model(bundle, 'int8')
  forget(run)
  model = model_lib.load(run, weights='int8')
  greedy = {'temperature': 0.0, 'max_new_tokens': 4}
  assert model.generate('the', **greedy) == wanted.generate('the', **greedy)
  assert model.score('the')[0].logprob == wanted.score('the')[0].logprob
  equal(model.embed('the'), wanted.embed('the'))
  assert repr(model) == repr(wanted)
  with pytest.raises(errors.InputError, match='is damaged'):
    model_lib.load(run, weights='int4')  # which has no file


def test_without_the_library_a_file_has_the_same_numbers(run, monkeypatch):
  there = bundle_lib.read(run, 'best', weights='int8').params
  native = products.products_native
  monkeypatch.setattr(native, 'lacking', lambda: 'no compiler')
  with jax.transfer_guard('disallow'):
    here = bundle_lib.read(run, 'best', weights='int8').params
  assert here['embedding']['embedding'].impl == 'plain'
  equal(*map(packed_weights.unpack, (here, there)))


def test_a_file_of_another_checkpoint_is_passed_over(run, bundle, caplog):
  other = build('gates', seed=1)
  shutil.rmtree(run / 'checkpoints')
  bundle_lib.write(other, run.parent / 'other')
  shutil.copytree(run.parent / 'other' / 'checkpoints', run / 'checkpoints')
  got = bundle_lib.read(run, 'best', weights='int8')
  bundles.assert_same(got, other)
  assert 'is of another checkpoint' in caplog.text
  assert 'launch.quantize' in caplog.text
  with pytest.raises(errors.InputError, match='no checkpoint of step 3'):
    bundle_lib.read(run, 3, weights='int8')


def test_a_folder_without_a_checkpoint(bundle, tmp_path, monkeypatch):
  monkeypatch.setattr(packed_weights, 'LARGE', 300)
  folder = tmp_path / 'small'
  own = packed(bundle, 'int4')
  bundle_lib.write(own, folder, 'int4')
  equal(bundle_lib.read(folder, 'best', weights='int4').params, own.params)
  rounded = jax.device_get(packed_weights.unpack(own.params))
  for which in ('best', 'latest', 0):
    read = bundle_lib.read(folder, which)
    assert read.step == 0
    equal(read.params, rounded)
  with pytest.raises(errors.InputError, match='no checkpoint of step 4 in'):
    bundle_lib.read(folder, 4)
  raw = json.loads((folder / 'config.json').read_text())
  with pytest.raises(errors.InputError, match='--init_from'):
    workdir_lib.join(folder, raw)
  # Adapters name the model that they change by this digest.
  digest = bundle_lib.digest(folder, bundle.config, 0)
  bundle_lib.write(packed(build('gates', 1), 'int4'), tmp_path / 'b', 'int4')
  assert digest != bundle_lib.digest(tmp_path / 'b', bundle.config, 0)


def change(run, **changes):
  """Writes the file again with other metadata, and the digest of these."""
  path = packed_file.path_of(run, 'int8')
  tensors = mapped_tensors.Tensors(path)
  facts = {**tensors.metadata, **changes}
  arrays = {
    name: x for name, x in tensors.arrays.items() if name not in changes
  }
  mapped_tensors.write(path, arrays, facts)


def reshape(run):
  path = packed_file.path_of(run, 'int8')
  tensors = mapped_tensors.Tensors(path)
  name = 'embedding.embedding.numbers'
  wrong = tensors.arrays[name].reshape(-1)
  mapped_tensors.write(path, {**tensors.arrays, name: wrong}, tensors.metadata)


def rewrite_config(run):
  path = run / 'config.json'
  raw = json.loads(path.read_text())
  raw['model']['norm_epsilon'] = 0.5
  path.write_text(json.dumps(raw))


def cut(run):
  path = packed_file.path_of(run, 'int8')
  path.write_bytes(path.read_bytes()[:-1])


def flip(run):
  path = packed_file.path_of(run, 'int8')
  content = bytearray(path.read_bytes())
  content[-9] ^= 1
  path.write_bytes(content)


def into_another(run):
  path = packed_file.path_of(run, 'int8')
  path.rename(packed_file.path_of(run, 'int4'))


def a_folder(run):
  path = packed_file.path_of(run, 'int8')
  path.unlink()
  path.mkdir()


REFUSED = {
  'another format': (lambda run: change(run, format='x'), "format is 'x'"),
  'another version': (lambda run: change(run, version='2'), "version is '2'"),
  'a step of letters': (lambda run: change(run, step='x'), 'is damaged'),
  'another config': (rewrite_config, 'model is .of another one'),
  'no config': (lambda run: change(run, model=''), 'is damaged'),
  'a config that is a list': (
    lambda run: change(run, model='[]'),
    'model is .of another one',
  ),
  'another tokenizer': (
    lambda run: change(run, tokenizer=''),
    'tokenizer is .of another one',
  ),
  'no embedding': (
    lambda run: change(run, **{'embedding.embedding.scales': ''}),
    'embedding.embedding.scales is missing, expected float32',
  ),
  'another shape': (reshape, 'embedding.embedding.numbers is int8'),
  'cut': (cut, 'is damaged'),
  'flipped': (flip, 'SHA-256 is another one'),
  'a folder': (a_folder, 'it is a folder'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_what_is_refused(name, run):
  damage, message = REFUSED[name]
  damage(run)
  with pytest.raises(errors.InputError, match=message) as raised:
    bundle_lib.read(run, 'best', weights='int8')
  assert 'launch.quantize' in str(raised.value)
  assert '\n' not in str(raised.value)
  if name != 'another config':  # other commands don't read it
    bundle_lib.read(run, 'best')


def test_a_file_under_another_formats_name_is_refused(run):
  into_another(run)
  with pytest.raises(errors.InputError, match="weights is 'int8', not int4"):
    bundle_lib.read(run, 'best', weights='int4')


def test_a_file_of_before_a_key_has_its_default(run, bundle):
  path = packed_file.path_of(run, 'int8')
  sections = json.loads(mapped_tensors.Tensors(path).metadata['model'])
  del sections['model']['norm_epsilon'], sections['model']['shared_block']
  change(run, model=json.dumps(sections))
  read = bundle_lib.read(run, 'best', weights='int8')
  equal(read.params, packed(bundle, 'int8').params)
  rewrite_config(run)  # its key isn't at the default
  with pytest.raises(errors.InputError, match='model is .of another one'):
    bundle_lib.read(run, 'best', weights='int8')
