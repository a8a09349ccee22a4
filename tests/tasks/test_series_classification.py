"""Labelled series: the equation, no leak, the layouts, a run."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.series import labelled
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from rnn_jax.training import programs as programs_lib
from tests.support import draws
from tests.support import labelled_series
from tests.support import launchers
from tests.support import shared

TASKS = labelled_series.TASKS


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


@pytest.fixture(scope='module', name='paths')
def _paths(tmp_path_factory):
  """A table for each task."""
  folder = tmp_path_factory.mktemp('series')
  for task, label in TASKS.items():
    frame = labelled_series.frame(label=label)
    frame.to_csv(folder / f'{task}.csv', index=False)
  return {task: folder / f'{task}.csv' for task in TASKS}


def opened(path, task, **changes):
  """(config, corpus, the task, parameters)."""
  raw = labelled_series.raw_config(path, task, **changes)
  config, corpus = labelled_series.corpus(raw)
  made = bundle_lib.make_task(config, corpus.tokenizer)
  return config, corpus, made, draws.parameters(made.init_parameters)


def outputs(task, params, readings_LxW):
  """The outputs LxO of one series by itself."""
  _, out = jax.jit(task.model.apply)(
    {'params': params}, task.init_state(1), readings_LxW[None]
  )
  return np.asarray(out[0], np.float64)


def log_softmax(x):
  x = x - x.max(-1, keepdims=True)
  return x - np.log(np.exp(x).sum(-1, keepdims=True))


def losses(name, out_LxO, targets_L):
  """The losses of steps with a target, by their equations in float64."""
  asked = ~np.isnan(targets_L)
  out, y = out_LxO[asked], targets_L[asked]
  if name == 'series_regression':
    return (out[:, 0] - y) ** 2
  return -log_softmax(out)[np.arange(len(y)), y.astype(int)]


@pytest.mark.parametrize('name', TASKS)
def test_steps_are_the_equation_s(paths, name):
  """Windows and targets of a row, against plain slices."""
  config, corpus, _, _ = opened(paths[name], name, **{'data.window': 3})
  given = labelled.content(corpus.documents['train'].read(1))
  steps = corpus.examples(config.data, 'train').read(1)
  scales = [corpus.tokenizer.fitted[x] for x in 'ab']
  y = (given.values_LxC - [x[0] for x in scales]) / [x[1] for x in scales]
  padded = np.concatenate([np.full((2, 2), np.nan), y])
  assert len(steps.readings_LxW) == len(y)
  for t, row in enumerate(steps.readings_LxW):
    wanted = padded[t : t + 3].T.ravel()  # the steps of a, then those of b
    np.testing.assert_allclose(row, wanted, rtol=1e-6)
  asked = np.flatnonzero(steps.weights_L)
  assert asked.tolist() == (
    [*range(len(y))] if name == 'series_tagging' else [len(y) - 1]
  )
  target = given.targets_T
  if name == 'series_regression':
    loc, scale = corpus.tokenizer.fitted['label']
    target = (target - loc) / scale
  np.testing.assert_allclose(steps.future_LxH[asked, 0], target, rtol=1e-6)


@pytest.mark.parametrize(
  ('name', 'layout'),
  (
    ('series_classification', 'packed'),
    ('series_regression', 'buckets'),
    ('series_tagging', 'packed'),
    ('series_tagging', 'padded'),
  ),
)
def test_a_layout_does_not_change_the_loss(paths, name, layout):
  """Packed series don't mix, in both directions of time."""
  changes = {'data.layout': layout, 'model.bidirectional': layout != 'padded'}
  if name != 'series_tagging':
    changes['task.pooling'] = 'concat'
  config, corpus, task, params = opened(paths[name], name, **changes)
  programs = programs_lib.from_config(config, corpus.tokenizer)
  run = evaluate.Run(config, corpus, programs, params, 0)
  made = corpus.examples(config.data, 'validation')
  wanted = []
  for n in range(len(made.lengths)):
    steps = made.read(n)
    out = outputs(task, params, steps.readings_LxW)
    wanted.append(losses(name, out, steps.future_LxH[:, 0]))
  got = run.evaluate('validation')['loss']
  assert got == pytest.approx(np.mean(np.concatenate(wanted)), rel=1e-4)


def test_a_step_of_a_tagged_series_sees_no_later_reading(paths):
  name = 'series_tagging'
  _, corpus, task, params = opened(paths[name], name)
  readings = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)

  def at(readings, t):
    _, out = task.model.apply(
      {'params': params}, task.init_state(1), readings[None]
    )
    return out[0, t].sum()

  gradient = np.asarray(jax.jit(jax.grad(at), static_argnums=1)(readings, 4))
  assert np.abs(gradient[:5]).max(-1).all()
  assert not gradient[5:].any()


def test_a_step_without_a_label_has_no_loss(paths, tmp_path):
  frame = labelled_series.frame(label='steps')
  frame.loc[frame.ds == 2, 'label'] = None
  frame.to_csv(tmp_path / 't.csv', index=False)
  config, corpus, _, _ = opened(tmp_path / 't.csv', 'series_tagging')
  steps = corpus.examples(config.data, 'train').read(0)
  assert np.flatnonzero(steps.weights_L == 0).tolist() == [2]


def test_a_missing_reading_is_seen_as_one(paths):
  """It differs from a reading of 0."""
  name = 'series_classification'
  _, _, task, params = opened(paths[name], name)
  missing = np.zeros((5, 2), np.float32)
  missing[2, 0] = np.nan
  out = outputs(task, params, missing)
  assert np.isfinite(out).all()
  assert (
    np.abs(out - outputs(task, params, np.nan_to_num(missing))).max() > 0.01
  )


def test_balanced_weights_are_those_of_the_classes(tmp_path):
  frame = labelled_series.frame()
  frame = frame[~frame.unique_id.isin(['s00', 's02', 's04', 's06'])]
  frame.to_csv(tmp_path / 't.csv', index=False)
  raw = labelled_series.raw_config(
    tmp_path / 't.csv', **{'task.class_weights': 'balanced'}
  )
  config, corpus = labelled_series.corpus(raw)
  counts = np.bincount(corpus.documents['train'].labels)
  np.testing.assert_allclose(
    config.task.class_weights, counts.sum() / (2 * counts)
  )


def test_a_run_learns_and_its_config_is_filled_in_once(paths, tmp_path):
  raw = labelled_series.raw_config(paths['series_classification'])
  raw.optimizer.learning_rate = 1e-2
  raw.train.update(steps=60, checkpoint_every=60, log_every=60)
  raw.evaluate.every = 60
  loop.train(config_lib.parse(raw), tmp_path / 'run')
  run = evaluate.Run.open(tmp_path / 'run', 'latest')
  assert run.evaluate('train')['accuracy'] == 1
  before = (tmp_path / 'run' / 'config.json').read_text()
  code, out, err = launchers.run('inspect', f'--workdir={tmp_path / "run"}')
  assert code == 0 and 'layer 0' in out, err
  loop.train(config_lib.parse(raw), tmp_path / 'run')  # nothing is left to do
  assert (tmp_path / 'run' / 'config.json').read_text() == before
