"""A whole run in this process: resuming, early stop, files."""

import contextlib
import json
import math
import pathlib
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import pipeline
from rnn_jax.runs import metrics
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from rnn_jax.training import programs as programs_lib
from tests.support import tiny

PROGRAMS = programs_lib.Programs


@pytest.fixture
def raw(tmp_path):
  return tiny.raw_config(tiny.write_text(tmp_path / 'text'))


@pytest.fixture(autouse=True)
def _programs(monkeypatch):
  """A resumed run has the programs of the interrupted one."""
  made, make = {}, programs_lib.Programs

  def once(task, config, mesh):
    key = config_lib.to_json(config)
    if key not in made:
      made[key] = make(task, config, mesh)
    return made[key]

  monkeypatch.setattr(programs_lib, 'Programs', once)


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


def assert_same(a, b):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, y)


LAYOUTS = {
  'buckets': {'layout': 'buckets', 'boundaries': (16, 32)},
  'sorted': {'layout': 'sorted', 'pool': 3},
  'packed': {'layout': 'packed'},
  'carried': {'layout': 'stream', 'carry_state': True, 'segment_bytes': 100},
}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_an_interrupted_run_ends_bit_for_bit_as_a_whole_one(
  raw, layout, tmp_path
):
  raw.data.update(LAYOUTS[layout])
  raw.model.dropout = 0.1
  whole, expected = train(raw, tmp_path / 'whole')
  for step in (2, 7):
    train(raw, tmp_path / 'resumed', stop_after=step)
  resumed, params = train(raw, tmp_path / 'resumed')
  assert_same(params, expected)
  assert resumed.best_loss == whole.best_loss
  assert resumed.real_tokens == whole.real_tokens
  rows = [metrics.read(tmp_path / name) for name in ('whole', 'resumed')]
  steps = [[(r['step'], r['split']) for r in some] for some in rows]
  assert steps[0] == steps[1]
  losses = [[r['loss'] for r in some] for some in rows]
  assert losses[0] == losses[1]


@pytest.mark.float16
def test_a_resumed_float16_run_keeps_its_loss_scale(raw, tmp_path):
  raw.train.update(precision='float16', loss_scale=2.0**20, loss_scale_steps=3)
  raw.train.log_every = 1
  _, expected = train(raw, tmp_path / 'whole')
  for step in (2, 7):
    train(raw, tmp_path / 'resumed', stop_after=step)
  _, params = train(raw, tmp_path / 'resumed')
  assert_same(params, expected)
  scales = [
    [
      row['loss_scale']
      for row in metrics.read(tmp_path / name)
      if 'seconds' in row
    ]
    for name in ('whole', 'resumed')
  ]
  assert scales[0] == scales[1] and len({*scales[0][5:]}) > 1


def test_a_resumed_run_keeps_int8_moments_and_its_lowered_rate(raw, tmp_path):
  raw.optimizer.moments = 'int8'
  raw.optimizer.learning_rate = 30.0  # too high to improve for long
  raw.schedule.name = 'plateau'
  raw.schedule.patience = 1
  raw.evaluate.every = 2
  _, expected = train(raw, tmp_path / 'whole')
  for step in (5, 10):
    train(raw, tmp_path / 'resumed', stop_after=step)
  _, params = train(raw, tmp_path / 'resumed')
  assert_same(params, expected)
  rates = [
    [row['learning_rate'] for row in rows if row['split'] == 'train']
    for rows in map(metrics.read, (tmp_path / 'whole', tmp_path / 'resumed'))
  ]
  assert rates[0] == rates[1] and 0 < rates[0][-1] < 30


def test_a_plateau_without_held_out_documents_is_refused(raw, tmp_path):
  raw.schedule.name = 'plateau'
  raw.data.splits = (100, 0, 0)
  with pytest.raises(
    errors.InputError, match="name='plateau' needs validation"
  ):
    train(raw, tmp_path / 'run')


def test_the_files_of_a_run(raw, tmp_path):
  progress, _ = train(raw, tmp_path / 'run')
  assert progress.finished == 'all steps'
  rows = metrics.read(tmp_path / 'run')
  assert [r['step'] for r in rows if r['split'] == 'validation'] == [6, 12]
  for row in rows:
    assert all(math.isfinite(v) for k, v in row.items() if k != 'split')
  names = {path.name for path in pathlib.Path(tmp_path / 'run').iterdir()}
  assert {
    'checkpoints',
    'loss.png',
    'metrics.jsonl',
    'tensorboard',
    'tokenizer.json',
  } <= names


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_program_is_compiled_for_each_shape_and_no_more(
  raw, layout, tmp_path
):
  raw.data.update(LAYOUTS[layout])
  raw.train.steps = 20
  train(raw, tmp_path / 'run')
  config = config_lib.parse(raw)
  corpus = pipeline.Corpus.open(config, tmp_path / 'run')
  shapes = pipeline.batch_shapes(corpus, config)
  last = metrics.read(tmp_path / 'run')[-2]
  assert last['split'] == 'train'
  programs = 2 * len(shapes)  # and of evaluation
  assert last['compiled_programs'] <= programs
  assert last['compiled_programs'] == programs or layout == 'sorted'


def test_the_time_spent_waiting_for_data_is_measured(
  raw, tmp_path, monkeypatch
):
  raw.train.steps = raw.train.checkpoint_every = 6
  raw.evaluate.every = 0
  raw.data.prefetch = 0
  train(raw, tmp_path / 'fast')
  slowed = pipeline.training_batches

  def slow(*arguments, place, **options):
    def late(batch):
      time.sleep(0.2)
      return place(batch)

    return slowed(*arguments, place=late, **options)

  monkeypatch.setattr(pipeline, 'training_batches', slow)
  train(raw, tmp_path / 'slow')
  waiting = [
    [
      row['data_waiting_share'] * row['seconds']
      for row in metrics.read(tmp_path / name)
      if row['split'] == 'train'
    ]
    for name in ('fast', 'slow')
  ]
  assert all(0 < seconds < 0.5 for seconds in waiting[0])
  assert all(seconds >= 0.6 for seconds in waiting[1])  # three batches each


def test_a_run_says_what_its_batches_are(raw, tmp_path, capsys):
  raw.data.layout = 'sorted'
  raw.data.length_multiple = 16
  for steps in (2, None):
    train(raw, tmp_path / 'run', stop_after=steps)
    out = capsys.readouterr().out
    assert re.search(
      r'^batches: sorted, at most 2 shapes: 8x16 ... 8x32, padding efficiency '
      r'\d\d% \(\d+ sampled rows\)$',
      out,
      re.MULTILINE,
    )


def test_training_lowers_the_held_out_loss(raw, tmp_path):
  raw.train.steps = 60
  raw.evaluate.every = 20
  raw.optimizer.learning_rate = 1e-2
  progress, _ = train(raw, tmp_path / 'run')
  rows = metrics.read(tmp_path / 'run')
  losses = [row['loss'] for row in rows if row['split'] == 'validation']
  assert losses[-1] < losses[0] < math.log(257) + 1
  assert progress.best_loss == min(losses)


def test_patience_ends_a_run_that_no_longer_improves(raw, tmp_path):
  raw.optimizer.learning_rate = 0.0
  raw.schedule.final_learning_rate = 0.0
  raw.evaluate.every = 2
  raw.evaluate.patience = 2
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
  losses = iter((3.0, loss))
  evaluated = evaluate.evaluate
  monkeypatch.setattr(
    evaluate,
    'evaluate',
    lambda *given, **more: evaluated(*given, **more) | {'loss': next(losses)},
  )
  raw.evaluate.every = 2
  workdir = tmp_path / 'run'
  with pytest.raises(errors.InputError, match='step 4: the validation loss is'):
    train(raw, workdir)
  rows = metrics.read(workdir)
  assert metrics.best(rows)['step'] == 2
  assert [r['best'] for r in rows if 'best' in r] == [1, 0]
  assert saved_steps(workdir) == ['2']


def test_too_many_non_finite_steps_end_the_run(raw, tmp_path):
  raw.optimizer.learning_rate = 1e30
  raw.optimizer.clip_norm = 0.0
  raw.train.max_skipped_steps = 3
  raw.schedule.warmup_steps = 0
  with pytest.raises(errors.InputError, match='3 steps in a row.*learning_rat'):
    train(raw, tmp_path / 'run')


def test_a_skipped_stretch_is_not_saved_and_an_earlier_step_is_taken_up(
  raw, tmp_path, capsys
):
  raw.train.checkpoint_every = 2
  raw.train.keep_checkpoints = 1
  raw.evaluate.every = 0
  workdir = tmp_path / 'run'
  whole, expected = train(raw, tmp_path / 'whole')
  assert whole.skipped_steps == 0
  with pytest.MonkeyPatch.context() as patch:
    skip_from(patch, 5)
    with pytest.raises(InterruptedError):
      loop.train(config_lib.parse(raw), str(workdir), hooks=[interrupt_at(9)])
  out = capsys.readouterr().out
  for step in (6, 8):
    assert f'step {step} is not saved: every step since' in out
  assert saved_steps(workdir) == ['4']

  # The same command goes on from the last good one.
  with pytest.raises(InterruptedError):
    loop.train(config_lib.parse(raw), str(workdir), hooks=[interrupt_at(9)])
  assert 'resumed at step 4' in capsys.readouterr().out
  raw.train.keep_checkpoints = 3
  loop.train(config_lib.parse(raw), str(workdir))
  assert saved_steps(workdir) == ['8', '10', '12']
  with pytest.raises(errors.InputError, match=r'choose one of \[8, 10, 12\]'):
    start = loop.Start(from_step=7)
    loop.train(config_lib.parse(raw), str(workdir), start=start)
  seen = []
  loop.train(
    config_lib.parse(raw),
    str(workdir),
    hooks=[seen.append],
    start=loop.Start(from_step=10),
  )
  assert 'resumed at step 10' in capsys.readouterr().out
  assert (workdir / 'checkpoints/12.replaced-1').exists()
  rows = [r['step'] for r in metrics.read(workdir) if r['split'] == 'train']
  assert rows == sorted(set(rows))
  assert_same(jax.device_get(seen[0].state.params), expected[0])


def skip_from(monkeypatch, first):
  """From this step on every step seems to be skipped, as a NaN does it."""
  run = PROGRAMS.train_step

  def skipping(programs, state, batch):
    step = int(state.step) + 1
    copy = jax.tree.map(jnp.copy, state)
    new, values = run(programs, state, batch)
    if step < first:
      return new, values
    skipped = {'finite': jnp.bool_(False), 'skipped': jnp.int32(1)}
    return copy.replace(step=new.step), values | skipped

  monkeypatch.setattr(PROGRAMS, 'train_step', skipping)


def interrupt_at(step):
  def interrupt(trainer):
    if trainer.step == step:
      raise InterruptedError

  return interrupt


def saved_steps(workdir):
  paths = (workdir / 'checkpoints').glob('[0-9]*')
  return sorted((p.name for p in paths if p.name.isdecimal()), key=int)


def test_parameters_that_are_not_finite_end_the_run_unsaved(raw, tmp_path):
  raw.train.checkpoint_every = 4
  raw.evaluate.every = 0

  def spoil(trainer):
    if trainer.step == 7:
      state = trainer.state
      params = jax.tree.map(lambda x: x * jnp.nan, state.params)
      trainer.state = state.replace(params=params)

  with pytest.raises(
    errors.InputError, match=r'step 8 is not saved.*--from_step, one of \[4\]'
  ):
    loop.train(config_lib.parse(raw), str(tmp_path / 'run'), hooks=[spoil])
  assert saved_steps(tmp_path / 'run') == ['4']


def test_another_config_is_refused_and_shown(raw, tmp_path):
  workdir = tmp_path / 'run'
  loop.train(config_lib.parse(raw), str(workdir))
  before = (workdir / 'config.json').read_text()
  raw.model.width = 32
  with pytest.raises(errors.InputError, match='model.width: 16 -> 32'):
    loop.train(config_lib.parse(raw), str(workdir))
  assert (workdir / 'config.json').read_text() == before
  assert json.loads(before)['model']['width'] == 16
