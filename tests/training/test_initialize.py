"""Runs that begin with the parameters of another one."""

import json
import shutil

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.runs import bundle
from rnn_jax.runs import origin
from rnn_jax.training import loop
from tests.support import shared
from tests.support import tiny

TEXTS = [
  {'text': f'{word} {other} reads', 'label': n % 2}
  for n, word in enumerate(tiny.WORDS)
  for other in tiny.WORDS
]


def write_jsonl(path):
  path.write_text('\n'.join(map(json.dumps, TEXTS)))
  return str(path)


def language(path, **changes):
  """The raw config of a language model of the texts in a file."""
  raw = tiny.raw_config('')
  raw.data.source = 'jsonl'
  raw.data.path = path
  raw.data.tokenizer = 'characters'
  raw.data.length = 24
  raw.data.layout = 'packed'  # one shape
  raw.model.layers = 1
  raw.train.steps = 2
  raw.data.splits = (100, 0, 0)  # nothing to evaluate
  config_lib.override(raw, changes)
  return raw


def classifier(path, **changes):
  given = {
    'task.name': 'classification',
    'data.classes': ('no', 'yes'),
    'optimizer.frozen': ('body/embedding/.*',),
    'train.steps': 3,
  }
  return language(path, **given | changes)


def train(raw, workdir, init=None, stop_after=None):
  """Returns the Trainer of a run, or None if it had ended already."""
  seen, start = [], loop.Start(init=init)

  def watch(trainer):
    seen.append(trainer)
    if trainer.step == stop_after:
      raise InterruptedError

  loop.train(config_lib.parse(raw), str(workdir), [watch], start=start)
  return seen[0] if seen else None


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  return write_jsonl(tmp_path_factory.mktemp('texts') / 'texts.jsonl')


@pytest.fixture(scope='module')
def source(texts, tmp_path_factory):
  folder = tmp_path_factory.mktemp('source') / 'run'
  train(language(texts), folder)
  return folder


def flat(workdir):
  return bundle.flat(bundle.read(workdir, 'latest').params)


def test_a_classifier_begins_with_a_language_model_once(
  texts, source, tmp_path, capsys
):
  run = tmp_path / 'language'
  shutil.copytree(source, run)
  init, workdir = origin.Init(str(run)), tmp_path / 'run'
  # Fewer texts, whose characters are others: its tokenizer isn't trained.
  fewer = tmp_path / 'fewer.jsonl'
  fewer.write_text('\n'.join(map(json.dumps, TEXTS[:40])))
  raw = classifier(str(fewer))
  raw.train.checkpoint_every = 2
  with pytest.raises(InterruptedError):
    train(raw, workdir, init, stop_after=2)
  out = capsys.readouterr().out
  began, own = flat(run), flat(workdir)
  embedding = began['embedding.embedding']
  np.testing.assert_array_equal(own['body.embedding.embedding'], embedding)
  for name in (run / 'tokenizer.json', workdir / 'tokenizer.json'):
    assert json.loads(name.read_text()) == json.loads(
      (run / 'tokenizer.json').read_text()
    )
  total = sum(x.size for x in own.values())
  head = own['head.kernel'].size + 2
  assert f'{total - head:,} of {total:,} parameters\n' in out
  assert f'  new: head/kernel: {run} has none' in out
  assert f'frozen: {embedding.size:,} of {total:,} parameters' in out
  assert "'body/embedding/.*': body/embedding/embedding (" in out
  record = json.loads((workdir / origin.NAME).read_text())
  assert (record['run'], record['step']) == (str(run), 2)
  assert len(record['sha256']) == 64
  assert record['new'] == ['head/bias', 'head/kernel']

  # The same command resumes, and reads the other run no more.
  shutil.rmtree(run)
  trainer = train(raw, workdir, init)
  assert trainer.step == 3
  assert 'resumed at step 2' in capsys.readouterr().out
  with pytest.raises(errors.InputError, match="has begun already, with run '"):
    train(raw, workdir, origin.Init(str(source)))
  train(raw, workdir)


def started(monkeypatch, raw, workdir, init):
  """Returns the Trainer of a run as it starts, without a step."""

  class Started(Exception):
    pass

  def stop(trainer, *_):
    raise Started(trainer)

  monkeypatch.setattr(loop.hooks_lib, 'add_all', stop)
  with pytest.raises(Started) as caught:
    loop.train(config_lib.parse(raw), str(workdir), start=loop.Start(init=init))
  (trainer,) = caught.value.args
  return trainer


def test_the_optimizer_continues_at_the_start_of_the_schedule(
  texts, source, tmp_path, monkeypatch
):
  init = origin.Init(str(source), 'latest', optimizer=True)
  trainer = started(monkeypatch, language(texts), tmp_path, init)
  state = jax.device_get(trainer.state)
  own, theirs = bundle.flat(state.params), flat(source)
  assert own.keys() == theirs.keys()
  for name in theirs:
    np.testing.assert_array_equal(own[name], theirs[name])
  leaves = jax.tree_util.tree_leaves_with_path(state.opt_state)
  named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
  counts = {name: int(x) for name, x in named.items() if 'count' in name}
  assert sorted(counts.values()) == [0, 2]  # of the schedule, of the moments
  assert any(np.any(x) for name, x in named.items() if '.mu' in name)
  assert int(state.step) == 0 and float(state.rate_scale) == 1


def test_another_vocabulary_and_other_sizes_are_new(
  texts, source, tmp_path, monkeypatch, capsys
):
  raw = language(texts, **{'data.tokenizer': 'bytes', 'cell.key_width': 8})
  started(monkeypatch, raw, tmp_path, origin.Init(str(source)))
  out = capsys.readouterr().out
  assert "has 'characters': the vocabulary is new" in out
  assert '  new: embedding/embedding: 257x16, there ' in out
  assert '  new: stack/blocks/cell/projection/kernel: 1x16x' in out
  new = json.loads((tmp_path / origin.NAME).read_text())['new']
  assert 'stack/blocks/cell/output/kernel' not in new


def test_what_fits_only_by_its_shape_is_new(texts, source, tmp_path):
  begun = bundle.read(source, 'latest')
  tokenizer = begun.tokenizer
  size = tokenizer.size
  other = type(tokenizer)('abcdefghijklmnopqrstuvwxyz'[: size - 2])
  assert other.size == size
  folder = tmp_path / 'other'
  bundle.write(bundle.Bundle(begun.config, other, begun.params), folder)
  with pytest.MonkeyPatch.context() as patch:
    # A tokenizer of the same kind is taken; this one isn't.
    patch.setattr(loop.initialize, 'tokenizer_of', lambda *_: (None, ''))
    started(patch, language(texts), tmp_path / 'a', origin.Init(str(folder)))
  record = json.loads((tmp_path / 'a' / origin.NAME).read_text())
  assert set(record['new']) == {
    'embedding/embedding',
    'head/bias',
    'head/kernel',
  }


def test_heads_of_other_classes_are_new(texts, source, tmp_path, monkeypatch):
  config = config_lib.parse(classifier(texts))
  tokenizer = bundle.read(source, 'latest').tokenizer
  like = bundle.like(config, tokenizer)
  params = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), like)
  for classes, new in (
    (('no', 'yes'), []),
    (('low', 'high'), ['head/bias', 'head/kernel']),
  ):
    begun, folder = (tmp_path / f'{x}-{classes[0]}' for x in ('begun', 'run'))
    config = config_lib.parse(classifier(texts, **{'data.classes': classes}))
    bundle.write(bundle.Bundle(config, tokenizer, params), begun)
    init = origin.Init(str(begun))
    started(monkeypatch, classifier(texts), folder, init)
    assert json.loads((folder / origin.NAME).read_text())['new'] == new


def test_an_svm_of_other_features_is_new(texts, source, tmp_path, monkeypatch):
  tokenizer = bundle.read(source, 'latest').tokenizer
  options = {'task.svm': 1.0, 'task.pairs': 16}
  for openings, new in ((0, ['svm/table']), (2, [])):
    theirs = options | {'task.openings': openings}
    config = config_lib.parse(classifier(texts, **theirs))
    like = bundle.like(config, tokenizer)
    params = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), like)
    begun, folder = (tmp_path / f'{x}-{openings}' for x in ('begun', 'run'))
    bundle.write(bundle.Bundle(config, tokenizer, params), begun)
    raw = classifier(texts, **options, **{'task.openings': 2})
    started(monkeypatch, raw, folder, origin.Init(str(begun)))
    assert json.loads((folder / origin.NAME).read_text())['new'] == new


REFUSED = {
  'no run': (('/no/such/run',), {}, "--init_from='/no/such/run': .*no such"),
  'no checkpoint': (('RUN', '77'), {}, r"--init_from='.*no checkpoint of step"),
  'nothing fits': (
    ('RUN',),
    {'model.width': 8, 'data.tokenizer': 'bytes', 'cell.heads': 1},
    'no parameter of it fits this model:\n  embedding/embedding: 257x8, there',
  ),
  'an average': (
    ('RUN', 'best', True),
    {'optimizer.name': 'schedule_free', 'schedule.name': 'constant'},
    "optimizer.name='schedule_free' averages",
  ),
  'an average of the parameters': (
    ('RUN', 'best', True),
    {'optimizer.ema_decay': 0.9},
    'optimizer.ema_decay=0.9 averages',
  ),
  'another optimizer': (
    ('RUN', 'best', True),
    {'optimizer.name': 'lion'},
    '--init_optimizer: .* has the state of another optimizer',
  ),
  'the folder itself': (('SELF',), {}, 'this is --workdir'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_what_cannot_be_taken_is_refused(case, texts, source, tmp_path):
  (run, *more), changes, message = REFUSED[case]
  run = {'RUN': str(source), 'SELF': str(tmp_path)}.get(run, run)
  with pytest.raises(errors.InputError, match=message):
    train(language(texts, **changes), tmp_path, origin.Init(run, *more))
  assert not list(tmp_path.glob('checkpoints/[0-9]*'))


def test_a_stranger_s_run_is_data(texts, source, tmp_path):
  run = tmp_path / 'theirs'
  shutil.copytree(source, run)
  config = json.loads((run / 'config.json').read_text())
  config['optimizer']['name'] = 'theirs.payload'
  (run / 'config.json').write_text(json.dumps(config))
  with pytest.raises(errors.InputError, match='would run its code'):
    train(language(texts), tmp_path / 'run', origin.Init(str(run)))


def test_a_run_that_has_begun_takes_no_other_parameters(texts, source):
  raw = language(texts)
  raw.train.steps = 4
  init = origin.Init(str(source.parent / 'other'))
  with pytest.raises(errors.InputError, match='parameters of its own'):
    train(raw, source, init)
