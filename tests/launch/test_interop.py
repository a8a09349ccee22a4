"""`launch.export` and `launch.convert`: out, back, and what is refused."""

import json

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import tensors
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.interop.gguf import models
from tests.support import bundles
from tests.support import launchers
from tests.support import shared
from tests.support import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope='module')
def _shared():
  with shared.programs():
    yield


@pytest.fixture(name='raw')
def _raw(trained):
  """The run's config, for fewer steps."""
  raw = trained[0].copy_and_resolve_references()
  raw.train.steps = 2
  raw.schedule.warmup_steps = 0
  return raw


@pytest.fixture(scope='module', name='run')
def _run(trained):
  return trained[1]


@pytest.fixture(scope='module', name='converted')
def _converted(run, tmp_path_factory):
  folder = tmp_path_factory.mktemp('there and back')
  path, converted = folder / 'model.safetensors', folder / 'run'
  form = '--format=safetensors'
  export = 'export', f'--workdir={run}', form, f'--output={path}'
  convert = 'convert', f'--input={path}', form, f'--workdir={converted}'
  for arguments in (export, convert):
    succeed(*arguments)
  return converted


def succeed(*arguments):
  code, out, err = launchers.run(*arguments)
  assert code == 0, err
  return out


def test_a_run_goes_out_and_comes_back(run, converted):
  assert {path.name for path in converted.iterdir()} == {
    'config.json',
    'tokenizer.json',
    'checkpoints',
  }
  bundles.assert_same(
    bundle_lib.read(converted, 'best'), bundle_lib.read(run, 'latest')
  )
  # The same model, on the same text: nothing differs but the step.
  row = evaluate.evaluate_run(evaluate.Run.open(str(converted)), 'test')
  assert row['step'] == 0 and 0 < row['loss'] < np.log(257)
  flags = '--prompt=the gate', '--max_new_tokens=4'
  out = succeed('generate', f'--workdir={converted}', *flags)
  assert out.startswith('the gate')


def test_training_begins_with_it_and_goes_on(run, converted, raw, capsys):
  # Less than float32 can tell of a parameter.
  raw.optimizer.learning_rate = raw.schedule.final_learning_rate = 1e-12
  raw.model.dropout = 0.1
  other = raw.copy_and_resolve_references()
  other.model.width = 24
  with pytest.raises(errors.InputError, match='model.width: 16 -> 24'):
    loop.train(config_lib.parse(other), str(converted))
  for said in ('starts from the parameters of', 'resumed at step 2'):
    loop.train(config_lib.parse(raw), str(converted))
    assert said in capsys.readouterr().out
  later = bundle_lib.flat(bundle_lib.read(converted, 2).params)
  trained = bundle_lib.flat(bundle_lib.read(run, 'latest').params)
  for name, x in trained.items():
    np.testing.assert_allclose(later[name], x, rtol=0, atol=1e-9)


def test_what_can_not_be_done_leaves_nothing(run, tmp_path):
  path = tmp_path / 'model.safetensors'
  tensors.write(path, {'head.bias': np.zeros(3, np.float32)})
  for arguments, message in (
    (
      ('convert', f'--input={path}', f'--workdir={tmp_path / "run"}'),
      'was not written by launch.export',
    ),
    (
      ('export', f'--workdir={run}', f'--output={path}'),
      'already exists: remove it',
    ),
  ):
    code, _, err = launchers.run(*arguments, '--format=safetensors')
    assert code == 1 and message in err and 'Traceback' not in err, err
  assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_step_of_decoding_is_exported(run, tmp_path):
  folder = tmp_path / 'step'
  flags = '--batch_size=3', '--platforms=cpu,cuda', f'--output={folder}'
  succeed('export', f'--workdir={run}', '--format=stablehlo', *flags)
  interface = json.loads((folder / 'interface.json').read_text())
  assert interface['platforms'] == ['cpu', 'cuda']
  assert interface['inputs']['token_B'] == 'int32[3]'


def test_published_tensors_become_a_run(tmp_path):
  raw = bundles.raw_published()
  bundle = bundles.make(raw)
  bundle_lib.write(bundle, tmp_path / 'run')
  path, folder = tmp_path / 'model.safetensors', tmp_path / 'converted'
  form = '--format=torch_simple_rnn'
  succeed('export', f'--workdir={tmp_path / "run"}', form, f'--output={path}')
  config = tiny.write_config(tmp_path / 'config.py', raw)
  flags = f'--config={config}', f'--input={path}', f'--workdir={folder}'
  succeed('convert', form, *flags)
  bundles.assert_same(bundle_lib.read(folder, 'latest'), bundle)


def test_graphs_of_a_step_and_a_row_are_exported(run, tmp_path):
  folder = tmp_path / 'graphs'
  flags = '--dtype=int8', '--opset=26', f'--output={folder}'
  succeed('export', f'--workdir={run}', '--format=onnx', *flags)
  interface = json.loads((folder / 'interface.json').read_text())
  assert interface['weights'] == 'int8'
  assert interface['inputs']['row']['tokens_BxL'] == 'int32[B, L]'
  assert (folder / 'generate.py').exists()
  code, _, err = launchers.run(
    'export',
    f'--workdir={run}',
    '--format=hf',
    '--dtype=int8',
    f'--output={tmp_path / "hf"}',
  )
  assert code == 1 and '--dtype' in err and 'Traceback' not in err


@pytest.fixture(scope='module', name='mamba2')
def _mamba2(tmp_path_factory):
  """A trained and evaluated run of a model that llama.cpp has."""
  folder = tmp_path_factory.mktemp('mamba2')
  like = models.make('mamba2', tokenizer_lib.Bytes(), hidden_size=16, expand=8)
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  described = config_lib.default('mamba2')
  for section in ('model', 'cell'):
    values = config_lib.to_dict(like.config)[section]
    raw[section] = described[section]
    raw[section].update(values)
  raw.train.steps = 2
  raw.schedule.warmup_steps = 0
  run = folder / 'demo'
  loop.train(config_lib.parse(raw), str(run))
  succeed('evaluate', f'--workdir={run}', '--split=test')
  return run


def test_a_run_goes_to_llama_cpp_with_a_card_and_comes_back(mamba2, tmp_path):
  out, back = tmp_path / 'out', tmp_path / 'back'
  flags = '--format=gguf', '--license=apache-2.0', f'--output={out}'
  flags += ('--max_shard_size=4KB',)
  succeed('export', f'--workdir={mamba2}', *flags)
  card = (out / 'README.md').read_text()
  front, _, text = card.removeprefix('---\n').partition('---\n')
  assert front.splitlines() == [
    'license: apache-2.0',
    'pipeline_tag: text-generation',
    'tags: ["rnn_jax", "mamba2", "gguf"]',
  ]
  data = json.loads((mamba2 / 'data.json').read_text())
  for split in data.values():
    assert f'`{split["content"]}`' in text
  path = mamba2 / 'evaluation' / 'test' / 'scores.json'
  scores = json.loads(path.read_text())
  low, high = scores['intervals']['loss']
  assert (
    f'| test | loss | {scores["loss"]:.4g} | {low:.4g} to {high:.4g} |'
    in (text)
  )
  written = '--format=gguf --max_shard_size=4KB --license=apache-2.0'
  assert f'--workdir=runs/demo {written}' in text
  assert len([*out.glob('model-*-of-*.gguf')]) > 1
  assert str(tmp_path) not in card and str(mamba2) not in card
  source = f'--input={out}', '--format=gguf'
  succeed('convert', *source, f'--workdir={back}')
  ours, theirs = (
    bundle_lib.flat(bundle_lib.read(x, 'latest').params) for x in (mamba2, back)
  )
  for name, x in ours.items():
    np.testing.assert_allclose(theirs[name], x, rtol=0, atol=2e-7)
  flags = '--prompt=the gate', '--max_new_tokens=4', '--temperature=0'
  written = [
    succeed('generate', f'--workdir={x}', *flags) for x in (mamba2, back)
  ]
  assert written[0] == written[1]


def test_a_folder_of_transformers_has_a_card_and_the_tokenizer(
  mamba2, tmp_path
):
  out = tmp_path / 'out'
  form = '--format=hf', f'--output={out}'
  succeed('export', f'--workdir={mamba2}', *form)
  assert {x.name for x in out.iterdir()} == {
    'README.md',
    'config.json',
    'model.safetensors',
    'tokenizer.json',
  }
  assert 'license: other' in (out / 'README.md').read_text()
  succeed(
    'convert', f'--input={out}', '--format=hf', f'--workdir={tmp_path}/in'
  )
  back = bundle_lib.read(tmp_path / 'in', 'latest')
  assert back.tokenizer.size == 257 and back.tokenizer.boundary == 256
  np.testing.assert_array_equal(
    back.tokenizer.encode_document('gate\n'), [*b'gate\n']
  )
  code, _, err = launchers.run(
    'export', f'--workdir={mamba2}', *form[:1], '--license=a b', '--output=x'
  )
  assert code == 1 and "--license='a b'" in err and 'Traceback' not in err
