"""A whole run in this process: resuming, early stop, files."""

import contextlib
import functools
import json
import math
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.runs import metrics
from rnn_jax.training import evaluate
from rnn_jax.training import hooks
from rnn_jax.training import loop
from rnn_jax.training import programs as programs_lib
from tests.support import shared
from tests.support import tiny

PROGRAMS = programs_lib.Programs
# The first two have the same model, and so share programs: the first one's are
# those of one shape. One layer trains as two do.
LAYOUTS = {
  'packed': {},
  'buckets': {'data.boundaries': (28, 32)},
  # Labels of characters, which are read in both directions.
  'sorted': {
    'data.pool': 3,
    'data.length_multiple': 16,
    'data.tokenizer': 'characters',
    'task.name': 'tagging',
    'model.bidirectional': True,
  },
  # A hybrid, whose states are many, with the rest of what a run's next step can
  # depend on.
  'stream': {
    'model.layers': 2,
    'model.cells': ('simple_rnn', 'lstm'),
    'model.dropout': 0.1,
    'cell.simple_rnn.key_width': 4,
    'cell.simple_rnn.value_width': 4,
    'data.carry_state': True,
    'data.segment_tokens': 100,
    'optimizer.learning_rate': 3.0,  # too high to improve for long
    'schedule.name': 'plateau',
    'schedule.patience': 1,
    'evaluate.every': 2,
  },
}


@pytest.fixture(scope='module', autouse=True)
def _programs():
  """A resumed run has the programs of the interrupted one."""
  with shared.programs():
    yield


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  folder = tmp_path_factory.mktemp('text')
  for n in range(12):
    word = tiny.WORDS[n % len(tiny.WORDS)] * (1 + n % 3)
    (folder / f'{n}.tags').write_text(f'{word}={word[::-1]}')
  return tiny.write_text(folder)


def configure(text, layout='packed'):
  tags = layout == 'sorted'
  raw = tiny.raw_config(text.replace('*.txt', '*.tags') if tags else text)
  raw.train.update(steps=8, log_every=2, checkpoint_every=4)
  raw.evaluate.every = 4
  raw.optimizer.learning_rate = 1e-2
  raw.model.layers = 1
  raw.data.layout = layout
  config_lib.override(raw, LAYOUTS[layout])
  return raw


@pytest.fixture
def raw(text):
  return configure(text)


@pytest.fixture(scope='module')
def whole(text, tmp_path_factory):
  """Returns (folder, progress, parameters) of a run that isn't interrupted."""

  @functools.cache
  def of(layout):
    folder = tmp_path_factory.mktemp('whole') / 'run'
    return folder, *train(configure(text, layout), folder)

  return of


def train(raw, workdir, stop_after=None):
  """Runs to the end, or is interrupted between two steps without a save.

  Returns (progress, None if interrupted; the parameters after its last step).
  """
  progress, seen = None, []

  def watch(trainer):
    seen[:] = [trainer]
    if trainer.step == stop_after:
      raise InterruptedError

  ending = contextlib.nullcontext()
  if stop_after is not None:
    ending = pytest.raises(InterruptedError)
  with ending:
    config = config_lib.parse(raw)
    progress = loop.train(config, str(workdir), hooks=[watch])
  params = [jax.device_get(trainer.state.params) for trainer in seen]
  return progress, jax.tree.map(np.array, params)


def column(workdir, name, split='train'):
  """The values of a metric that a run wrote."""
  return [r[name] for r in metrics.read(workdir) if r['split'] == split]


def assert_same(a, b):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_an_interrupted_run_ends_bit_for_bit_as_a_whole_one(
  layout, text, whole, tmp_path
):
  folder, progress, expected = whole(layout)
  raw = configure(text, layout)
  # Before its first checkpoint, and after it.
  for step in (2, 6) if layout == 'stream' else (6,):
    train(raw, tmp_path, stop_after=step)
  resumed, params = train(raw, tmp_path)
  assert_same(params, expected)
  assert resumed.best_loss == progress.best_loss
  assert resumed.real_tokens == progress.real_tokens
  rows = [metrics.read(x) for x in (folder, tmp_path)]
  steps = [[(r['step'], r['split']) for r in some] for some in rows]
  assert steps[0] == steps[1]
  losses = [[r['loss'] for r in some] for some in rows]
  assert losses[0] == losses[1]
  rates = [column(x, 'learning_rate') for x in (folder, tmp_path)]
  assert rates[0] == rates[1]
  assert layout != 'stream' or 0 < rates[0][-1] < 3


def test_a_paused_run_ends_bit_for_bit_as_a_whole_one(
  raw, whole, tmp_path, capsys
):
  expected, seen = whole('packed')[2], []
  for start in (2, 2, 6, None):  # the second time it is there already
    progress = loop.train(
      config_lib.parse(raw),
      str(tmp_path / 'run'),
      hooks=[seen.append],
      start=loop.Start(pause_at=start),
    )
    assert progress.finished == ('' if start else 'all steps')
    out = capsys.readouterr().out
    paused = f'paused: saved at step {start}; the same without --pause_at '
    assert (paused in out) == bool(start)
  assert [trainer.step for trainer in seen] == [2, 2, *[6] * 4, 8, 8]
  assert_same(jax.device_get(seen[-1].state.params), expected[0])


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_program_is_compiled_for_each_shape_and_no_more(layout, text, whole):
  folder, *_ = whole(layout)
  config = config_lib.parse(configure(text, layout))
  corpus = corpus_lib.Corpus.open(config, folder)
  training = pipeline.training_batches(corpus, config)
  shapes = {next(training).weights_BxL.shape for _ in range(config.train.steps)}
  announced = pipeline.batch_shapes(corpus, config)
  assert shapes <= {*announced}
  held_out = pipeline.heldout_batches(corpus, config, 'validation')
  evaluated = {batch.weights_BxL.shape for batch in held_out}
  assert evaluated <= {*pipeline.heldout_shapes(corpus, config, 'validation')}
  compiled = column(folder, 'compiled_programs')[-1]
  used = len(shapes) + len(evaluated)
  assert used <= compiled <= 2 * len(announced)
  assert compiled == used or layout == 'sorted'  # with those of buckets


def test_training_lowers_the_held_out_loss(whole):
  folder, progress, _ = whole('packed')
  losses = column(folder, 'loss', 'validation')
  assert losses[-1] < losses[0] < math.log(257) + 1
  assert progress.best_loss == min(losses)


@pytest.mark.float16
def test_a_resumed_float16_run_keeps_its_loss_scale(raw, tmp_path):
  raw.train.update(precision='float16', loss_scale=2.0**18, loss_scale_steps=2)
  raw.train.log_every = 1
  raw.evaluate.every = 0
  raw.data.splits = (100, 0, 0)
  _, expected = train(raw, tmp_path / 'whole')
  train(raw, tmp_path / 'resumed', stop_after=6)
  _, params = train(raw, tmp_path / 'resumed')
  assert_same(params, expected)
  scales = [column(tmp_path / x, 'loss_scale') for x in ('whole', 'resumed')]
  assert scales[0] == scales[1] and len({*scales[0][4:]}) > 1
  assert scales[0][0] == 2.0**18


def test_a_plateau_without_held_out_documents_is_refused(raw, tmp_path):
  raw.schedule.name = 'plateau'
  raw.data.splits = (100, 0, 0)
  with pytest.raises(
    errors.InputError, match="name='plateau': it needs validation"
  ):
    train(raw, tmp_path / 'run')


def test_the_files_of_a_run(whole):
  folder, progress, _ = whole('packed')
  assert progress.finished == 'all steps'
  rows = metrics.read(folder)
  assert [r['step'] for r in rows if r['split'] == 'validation'] == [4, 8]
  for row in rows:
    assert all(math.isfinite(v) for k, v in row.items() if k != 'split')
  names = {path.name for path in folder.iterdir()}
  assert {
    'checkpoints',
    'metrics.jsonl',
    'tensorboard',
    'tokenizer.json',
  } <= names


def test_the_time_spent_waiting_for_data_is_measured(
  raw, tmp_path, monkeypatch
):
  raw.evaluate.every = 0
  raw.data.prefetch = 0
  train(raw, tmp_path / 'fast', stop_after=4)
  slowed = pipeline.training_batches

  def slow(*arguments, place, **options):
    def late(batch):
      time.sleep(0.3)
      return place(batch)

    return slowed(*arguments, place=late, **options)

  monkeypatch.setattr(pipeline, 'training_batches', slow)
  train(raw, tmp_path / 'slow', stop_after=4)
  waiting = [
    [
      row['data_waiting_share'] * row['seconds']
      for row in metrics.read(tmp_path / name)
    ]
    for name in ('fast', 'slow')
  ]
  assert [*map(len, waiting)] == [2, 2]
  assert all(seconds > 0 for seconds in waiting[0])
  assert all(seconds >= 0.6 for seconds in waiting[1])  # two batches each


def test_a_run_says_what_its_batches_are(text, tmp_path, capsys):
  raw = configure(text, 'sorted')
  for steps in (1, 2):
    train(raw, tmp_path / 'run', stop_after=steps)
    out = capsys.readouterr().out
    assert re.search(
      r'^batches: sorted, at most 2 shapes: 8x16 ... 8x32, padding efficiency '
      r'\d\d%$',
      out,
      re.MULTILINE,
    )


def evaluate_as(monkeypatch, *losses):
  """Evaluations have these losses."""
  given, evaluated = iter(losses), evaluate.Run.evaluate
  monkeypatch.setattr(
    evaluate.Run,
    'evaluate',
    lambda *args, **more: evaluated(*args, **more) | {'loss': next(given)},
  )


def test_patience_ends_a_run_that_no_longer_improves(
  raw, tmp_path, monkeypatch
):
  raw.evaluate.every = 2
  raw.evaluate.patience = 2
  evaluate_as(monkeypatch, 3.0, 3.0, 3.1)
  progress, _ = train(raw, tmp_path / 'run')
  assert progress.finished == 'no better for 2 evaluations'
  assert progress.best_step == 2
  steps = [row['step'] for row in metrics.read(tmp_path / 'run')]
  assert max(steps) == 6
  again, _ = train(raw, tmp_path / 'run')
  assert again.finished == progress.finished


@pytest.mark.parametrize('loss', (math.nan, math.inf))
def test_a_validation_loss_that_isnt_a_number_ends_the_run(
  loss, raw, tmp_path, monkeypatch
):
  evaluate_as(monkeypatch, 3.0, loss)
  raw.evaluate.every = 2
  workdir = tmp_path / 'run'
  with pytest.raises(errors.InputError, match='step 4: the validation loss is'):
    train(raw, workdir)
  rows = metrics.read(workdir)
  assert metrics.best(rows)['step'] == 2
  assert [r['best'] for r in rows if 'best' in r] == [1, 0]
  assert saved_steps(workdir) == ['2']


def test_too_many_non_finite_steps_end_the_run(raw, tmp_path):
  raw.train.update(max_skipped_steps=3, checkpoint_every=8)
  raw.evaluate.every = 0
  with pytest.raises(
    errors.InputError, match='3 steps in a row, up to step 5.*learning_rate'
  ):
    loop.train(config_lib.parse(raw), str(tmp_path), hooks=[spoil_at(2)])


def test_a_skipped_stretch_is_not_saved_and_an_earlier_step_is_taken_up(
  raw, whole, tmp_path, capsys
):
  raw.train.checkpoint_every = 2
  raw.train.keep_checkpoints = 1
  raw.evaluate.every = 0
  workdir = tmp_path / 'run'
  assert whole('packed')[1].skipped_steps == 0
  with pytest.MonkeyPatch.context() as patch:
    skip_from(patch, 3)
    train(raw, workdir, stop_after=7)
  out = capsys.readouterr().out
  for step in (4, 6):
    assert f'step {step} is not saved: every step since' in out
  assert saved_steps(workdir) == ['2']

  # The same command goes on from the last good one.
  train(raw, workdir, stop_after=5)
  assert 'resumed at step 2' in capsys.readouterr().out
  raw.train.keep_checkpoints = 3
  train(raw, workdir)
  assert saved_steps(workdir) == ['4', '6', '8']
  with pytest.raises(errors.InputError, match=r'choose one of \[4, 6, 8\]'):
    start = loop.Start(from_step=5)
    loop.train(config_lib.parse(raw), str(workdir), start=start)
  seen = []
  loop.train(
    config_lib.parse(raw),
    str(workdir),
    hooks=[seen.append],
    start=loop.Start(from_step=6),
  )
  assert 'resumed at step 6' in capsys.readouterr().out
  assert (workdir / 'checkpoints/8.replaced-1').exists()
  rows = column(workdir, 'step')
  assert rows == sorted(set(rows))
  expected = whole('packed')[2]
  assert_same(jax.device_get(seen[0].state.params), expected[0])


def skip_from(monkeypatch, first):
  """From this step on every step seems to be skipped, as a NaN does it."""
  add_all = hooks.add_all

  def add_all_and_skip(trainer, stop):
    run = trainer.programs.train_step

    def skipping(state, batch):
      step = int(state.step) + 1
      copy = jax.tree.map(jnp.copy, state)
      new, values = run(state, batch)
      if step < first:
        return new, values
      skipped = {'finite': np.bool_(False), 'skipped': np.int32(1)}
      skipped = jax.device_put(skipped)
      return copy.replace(step=new.step), values | skipped

    monkeypatch.setattr(trainer.programs, 'train_step', skipping)
    add_all(trainer, stop)

  monkeypatch.setattr(hooks, 'add_all', add_all_and_skip)


def _nan_like(x):
  return jax.device_put(np.full(x.shape, np.nan, x.dtype), x.sharding)


def spoil_at(step):
  """Returns a hook after whose step the parameters are NaN."""

  def spoil(trainer):
    if trainer.step == step:
      state = trainer.state
      params = jax.tree.map(_nan_like, state.params)
      trainer.state = state.replace(params=params)

  return spoil


def saved_steps(workdir):
  paths = (workdir / 'checkpoints').glob('[0-9]*')
  return sorted((p.name for p in paths if p.name.isdecimal()), key=int)


def test_parameters_that_are_not_finite_end_the_run_unsaved(raw, tmp_path):
  raw.data.splits = (100, 0, 0)  # no evaluation sees it before
  with pytest.raises(
    errors.InputError, match=r'step 8 is not saved.*--from_step, one of \[4\]'
  ):
    loop.train(config_lib.parse(raw), str(tmp_path), hooks=[spoil_at(7)])
  assert saved_steps(tmp_path) == ['4']


def test_another_config_is_refused_and_shown(raw, whole):
  folder, *_ = whole('packed')
  before = (folder / 'config.json').read_text()
  raw.model.width = 32
  with pytest.raises(errors.InputError, match='model.width: 16 -> 32'):
    loop.train(config_lib.parse(raw), str(folder))
  assert (folder / 'config.json').read_text() == before
  assert json.loads(before)['model']['width'] == 16
