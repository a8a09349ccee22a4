"""A whole run in this process: resuming, early stop, files."""

import contextlib
import json
import math
import pathlib
import re
import time

import jax
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


def test_a_loss_that_isnt_a_number_is_never_the_best(
  raw, tmp_path, monkeypatch
):
  losses = iter((math.nan, 3.0, 2.0, math.inf, 1.0, 4.0))
  evaluated = evaluate.evaluate
  monkeypatch.setattr(
    evaluate,
    'evaluate',
    lambda *given, **more: evaluated(*given, **more) | {'loss': next(losses)},
  )
  raw.evaluate.every = 2
  raw.evaluate.patience = 2
  progress, _ = train(raw, tmp_path / 'run')
  assert progress.finished == 'all steps'
  assert (progress.best_step, progress.best_loss) == (10, 1.0)
  rows = metrics.read(tmp_path / 'run')
  assert metrics.best(rows)['step'] == 10
  assert [r['best'] for r in rows if 'best' in r] == [0, 1, 1, 0, 1, 0]


def test_too_many_non_finite_steps_end_the_run(raw, tmp_path):
  raw.optimizer.learning_rate = 1e30
  raw.optimizer.clip_norm = 0.0
  raw.train.max_skipped_steps = 3
  raw.schedule.warmup_steps = 0
  with pytest.raises(errors.InputError, match='3 steps in a row.*learning_rat'):
    train(raw, tmp_path / 'run')


def test_another_config_is_refused_and_shown(raw, tmp_path):
  workdir = tmp_path / 'run'
  loop.train(config_lib.parse(raw), str(workdir))
  before = (workdir / 'config.json').read_text()
  raw.model.width = 32
  with pytest.raises(errors.InputError, match='model.width: 16 -> 32'):
    loop.train(config_lib.parse(raw), str(workdir))
  assert (workdir / 'config.json').read_text() == before
  assert json.loads(before)['model']['width'] == 16
