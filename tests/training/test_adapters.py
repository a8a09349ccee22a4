"""Runs that train adapters of another run's model."""

import dataclasses
import json
import os
import shutil

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import adapters
from rnn_jax.models import packed_weights
from rnn_jax.models import rounded_weights
from rnn_jax.runs import adapter
from rnn_jax.runs import bundle
from rnn_jax.runs import origin
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.training import evaluate
from rnn_jax.training.memory import batch_size
from tests.support import launchers
from tests.support import shared
from tests.training import test_initialize as runs

RANK, ALPHA = 2, 8.0
CHANGES = {
  'adapters.rank': RANK,
  'adapters.alpha': ALPHA,
  'adapters.targets': ('.*/kernel', '.*embedding'),
  'optimizer.learning_rate': 0.02,
  'schedule.warmup_steps': 0,
  'train.steps': 6,
  'train.checkpoint_every': 2,
  'train.log_every': 1,
}
KEPT = {'generation_config.json': '{"eos_token_id": 5}'}


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


@pytest.fixture(scope='module', name='texts')
def _texts(tmp_path_factory):
  return runs.write_jsonl(tmp_path_factory.mktemp('texts') / 'texts.jsonl')


@pytest.fixture(scope='module', name='base')
def _base(texts, tmp_path_factory):
  folder = tmp_path_factory.mktemp('base') / 'run'
  runs.train(runs.language(texts), folder)
  bundle.keep({**KEPT, bundle.DTYPES: '{}'}, folder)
  return folder


@pytest.fixture(scope='module', name='whole')
def _whole(texts, base, tmp_path_factory):
  """Returns (folder, Trainer) of a run with adapters."""
  folder = tmp_path_factory.mktemp('whole') / 'run'
  init = origin.Init(str(base))
  return folder, runs.train(runs.language(texts, **CHANGES), folder, init)


def stored(folder, name='adapters'):
  """The names of a part of the newest checkpoint."""
  checkpoints = checkpoint.Checkpoints(folder / workdir_lib.CHECKPOINTS)
  tree = checkpoints.stored(checkpoints.steps()[-1])[name]
  checkpoints.close()
  paths = (path for path, _ in jax.tree.leaves_with_path(tree))
  return {jax.tree_util.keystr(x, simple=True, separator='.') for x in paths}


def test_only_the_changes_are_trained_and_saved(base, whole):
  folder, trainer = whole
  before = bundle.flat(bundle.read(base, 'best').params)
  after = bundle.flat(jax.device_get(trainer.state.params))
  for name, x in before.items():
    np.testing.assert_array_equal(after[name], x)
  assert stored(folder) == {x for x in after if x.startswith('adapters.')}
  moments = stored(folder, 'opt_state')
  assert sum('adapters.' in name for name in moments) == 2 * len(stored(folder))
  assert not any('mu' in x and 'adapters.' not in x for x in moments)


def test_a_run_is_read_merged(base, whole):
  folder, trainer = whole
  merged = bundle.read(folder, 'latest')
  assert merged.config.adapters.rank == 0
  assert merged.kept == KEPT  # dtypes are of the numbers before
  model = bundle.flat(bundle.read(base, 'best').params)
  changes = bundle.flat(jax.device_get(trainer.state.params['adapters']))
  for name, x in bundle.flat(merged.params).items():
    want = np.float64(model[name])
    if name.rpartition('.')[2] in ('kernel', 'embedding'):
      a, b = (np.float64(changes[f'{name}.{side}']) for side in 'ab')
      assert np.abs(a @ b).max() > 1e-4
      want = want + ALPHA / RANK * a @ b
    np.testing.assert_allclose(x, want, 1e-5, 1e-6)
  run = evaluate.Run.open(folder, 'latest')
  loss = evaluate.evaluate_run(run, 'train')['loss']
  # Evaluated by the programs of training, which have both parts.
  parts = trainer.corpus, trainer.programs, trainer.state.params
  trained = evaluate.Run(trainer.config, *parts, 0).evaluate('train')
  assert loss == pytest.approx(trained['loss'], rel=1e-5)
  code, out, err = launchers.run(
    'generate', f'--workdir={folder}', '--prompt=the', '--max_new_tokens=3'
  )
  assert code == 0 and out, err


def test_an_interrupted_run_ends_bit_for_bit_as_a_whole_one(
  texts, base, whole, tmp_path
):
  raw, init = runs.language(texts, **CHANGES), origin.Init(str(base))
  with pytest.raises(InterruptedError):
    runs.train(raw, tmp_path / 'run', init, stop_after=3)
  resumed = runs.train(raw, tmp_path / 'run')  # it knows its base
  assert resumed.step == 6
  jax.tree.map(
    np.testing.assert_array_equal,
    *(jax.device_get(x.state.params) for x in (resumed, whole[1])),
  )


def test_a_classifier_trains_its_head_beside(texts, base, tmp_path):
  init = origin.Init(str(base))
  given = CHANGES | {'adapters.trained': ('head/.*',), 'train.steps': 2}
  given['optimizer.frozen'] = ()
  runs.train(runs.classifier(texts, **given), tmp_path / 'run', init)
  names = stored(tmp_path / 'run')
  assert {'head.kernel', 'head.bias'} < names
  assert any(name.startswith('adapters.body.') for name in names)
  model = bundle.flat(bundle.read(base, 'best').params)
  merged = bundle.flat(bundle.read(tmp_path / 'run', 'latest').params)
  name = 'stack.blocks.cell.projection.bias'
  np.testing.assert_array_equal(merged[f'body.{name}'], model[name])
  given = given | {'adapters.trained': ()}
  message = r'adapters.trained=\(\): head/bias would stay random'
  with pytest.raises(errors.InputError, match=message):
    runs.train(runs.classifier(texts, **given), tmp_path / 'other', init)


def test_a_model_that_is_gone_or_another_is_named(base, whole, tmp_path):
  folder = tmp_path / 'run'
  shutil.copytree(whole[0], folder)
  path = folder / origin.NAME
  record = json.loads(path.read_text())
  for changed, message in (
    ({'run': '/no/such/run'}, "of /no/such/run, which can't be read"),
    ({'sha256': 'f' * 64}, f'of {base}, which is another checkpoint now'),
    ({'run': 3}, r'init.json is damaged \(run=3\)'),
    ({'step': 'x'}, r"init.json is damaged \(step='x'\)"),
    ({'step': True}, r'init.json is damaged \(step=True\)'),
    ({'taken': ['x', 3]}, 'init.json is damaged .*taken is no list of names'),
    ({'taken': ['x']}, r"init.json is damaged \(taken='x' is not a param"),
    ({'taken': []}, 'init.json names a model in which .* is missing'),
    ({'run': str(folder)}, 'which leads back to itself'),
  ):
    path.write_text(json.dumps(record | changed))
    with pytest.raises(errors.InputError, match=message):
      bundle.read(folder, 'best')
  path.unlink()
  os.mkfifo(path)
  with pytest.raises(errors.InputError, match='init.json: it is a pipe'):
    bundle.read(folder, 'best')
  path.unlink()
  with pytest.raises(errors.InputError, match='init.json is missing'):
    bundle.read(folder, 'best')


def test_a_base_in_8_bits_resumes_and_is_read_merged(texts, base, tmp_path):
  given = CHANGES | {'adapters.base': 'int8', 'train.accumulate': 2}
  raw, init = runs.language(texts, **given), origin.Init(str(base))
  whole = runs.train(raw, tmp_path / 'whole', init)
  model, changes = adapters.split(jax.device_get(whole.state.params))
  before = bundle.read(base, 'best').params
  held = adapters.hold(before, whole.config.adapters)
  jax.tree.map(np.testing.assert_array_equal, model, jax.device_get(held))
  name = 'stack.blocks.cell.projection.kernel'
  assert bundle.flat(model)[f'{name}.int8'].dtype == np.int8
  assert np.abs(bundle.flat(changes)[f'{name}.b']).max() > 1e-3
  matrices = {
    x: n
    for x, n in bundle.flat(before).items()
    if x.rpartition('.')[2] in ('kernel', 'embedding')
  }
  scales = sum(bundle.flat(model)[f'{x}.scale'].size for x in matrices)
  less = sum(3 * x.size for x in matrices.values()) - 4 * scales
  assert less > 1000
  size = batch_size.tree_bytes
  assert size(model) == size(before) - less
  assert all(x.startswith('adapters.') for x in stored(tmp_path / 'whole'))
  with pytest.raises(InterruptedError):
    runs.train(raw, tmp_path / 'run', init, stop_after=3)
  resumed = runs.train(raw, tmp_path / 'run')
  jax.tree.map(
    np.testing.assert_array_equal,
    *(jax.device_get(x.state.params) for x in (resumed, whole)),
  )
  merged = bundle.flat(bundle.read(tmp_path / 'run', 'latest').params)
  a, b = (np.float64(bundle.flat(changes)[f'{name}.{side}']) for side in 'ab')
  want = bundle.flat(jax.device_get(rounded_weights.unpack(held)))[name]
  want = np.float64(want) + ALPHA / RANK * a @ b
  np.testing.assert_allclose(merged[name], want, 1e-5, 1e-6)


def test_a_base_in_4_bits_trains_and_is_read_merged(texts, base, tmp_path):
  raw = runs.language(texts, **CHANGES | {'adapters.base': 'int4'})
  trained = runs.train(raw, tmp_path / 'run', origin.Init(str(base)))
  model, changes = adapters.split(jax.device_get(trained.state.params))
  name = 'stack.blocks.cell.projection.kernel'
  assert bundle.flat(model)[f'{name}.int4'].dtype == np.uint8
  assert np.abs(bundle.flat(changes)[f'{name}.b']).max() > 1e-3
  before = bundle.read(base, 'best').params
  held = adapters.hold(before, trained.config.adapters)
  jax.tree.map(np.testing.assert_array_equal, model, jax.device_get(held))
  merged = bundle.flat(bundle.read(tmp_path / 'run', 'latest').params)
  a, b = (np.float64(bundle.flat(changes)[f'{name}.{side}']) for side in 'ab')
  want = bundle.flat(jax.device_get(rounded_weights.unpack(held)))[name]
  want = np.float64(want) + ALPHA / RANK * a @ b
  np.testing.assert_allclose(merged[name], want, 1e-5, 1e-6)


def test_packed_files_of_a_run_and_of_the_model_that_it_changes(
  base, whole, tmp_path
):
  folders = [tmp_path / 'base', tmp_path / 'whole']
  for source, folder in zip((base, whole[0]), folders, strict=True):
    shutil.copytree(source, folder)
    read = bundle.read(folder, 'latest')
    params = jax.device_put(read.params)
    packed = jax.device_get(packed_weights.panels(params, 'int8'))
    packed = dataclasses.replace(read, params=packed)
    bundle.write_packed(packed, folder, 'int8')
    for state in (folder / 'checkpoints').glob('*/state'):
      shutil.rmtree(state)
    got = bundle.read(folder, 'latest', weights='int8')
    for name in ('config', 'step', 'kept'):
      assert getattr(got, name) == getattr(read, name)
    jax.tree.map(np.testing.assert_array_equal, got.params, packed.params)
  model = bundle.read(folders[0], 'best', weights='int8')
  assert adapter.read(whole[0], 'latest', folders[0], model).step == 6


def test_a_server_reads_the_changes_only(base, whole, tmp_path):
  folder, trainer = whole
  model = bundle.read(base, 'best')
  moved = tmp_path / 'moved'  # the model may be anywhere
  shutil.copytree(base, moved)
  read = adapter.read(folder, 'latest', moved, model)
  assert (read.step, read.config.adapters.rank) == (6, RANK)
  want = jax.device_get(trainer.state.params['adapters'])
  jax.tree.map(np.testing.assert_array_equal, read.changes, want)

  def refuses(message, workdir=folder, model=model, where=base):
    with pytest.raises(errors.InputError, match=message):
      adapter.read(workdir, 'best', where, model)

  refuses('adapters.rank=0: the run has no adapters', base)
  step = bundle.read(folder, 'latest')
  refuses(
    f'change step .* of {base}, which is not step 6', folder, step, folder
  )
  config = dataclasses.replace(model.config.model, norm='layer')
  config = dataclasses.replace(model.config, model=config)
  changed = dataclasses.replace(model, config=config)
  refuses("model.norm='rms', and 'layer' in .*: it was trained", model=changed)
  changed = dataclasses.replace(model, tokenizer=tokenizer_lib.Numbers(9))
  refuses('have different tokenizers', model=changed)
  shutil.copytree(folder, tmp_path / 'run')
  path = tmp_path / 'run/config.json'
  config = json.loads(path.read_text())
  config['adapters']['trained'] = ['head/.*']
  path.write_text(json.dumps(config))
  refuses(r"adapters.trained=\('head/\.\*',\)", tmp_path / 'run')
  for given, message in (
    ('x', "--adapters='x': give NAME=FOLDER"),
    (f'x={folder},x={folder}', 'each name only once'),
    (f'x={base}', 'the run has no adapters'),
  ):
    code, _, err = launchers.run(
      'serve', f'--workdir={base}', f'--adapters={given}', '--port=0'
    )
    assert code and message in err


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({}, 'adapters.rank=2: adapters change .* --init_from'),
    ({'optimizer.name': 'kfac'}, "not available with optimizer.name='kfac'"),
    ({'adapters.rank': 0}, r'adapters.alpha=8.0: it has no effect'),
    ({'adapters.targets': ('(',)}, r"adapters.targets='\(': not a regular"),
    ({'adapters.base': 'int2'}, r"adapters.base='int2': choose one of"),
    ({'adapters.dropout': 1.0}, r'adapters.dropout=1.0: give a number in'),
  ),
)
def test_what_has_no_meaning_is_refused(
  changes, message, texts, base, tmp_path
):
  raw = runs.language(texts, **CHANGES | changes)
  init = origin.Init(str(base)) if changes else None
  with pytest.raises(errors.InputError, match=message):
    runs.train(raw, tmp_path / 'run', init)
