"""A run with more steps than it was started with."""

import json

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.runs import metrics
from rnn_jax.training import extend
from rnn_jax.training import loop
from rnn_jax.training import trainer as trainer_lib
from tests.support import shared
from tests.support import tiny


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


@pytest.fixture(scope='module')
def raw(tmp_path_factory):
  folder = tmp_path_factory.mktemp('extend')
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  raw.data.boundaries = (32,)
  raw.schedule.name = 'constant'
  raw.evaluate.every = 2
  raw.model.dropout = 0.1
  raw.train.update_norms = True
  return raw


def train(raw, workdir, steps, **changes):
  """Returns (progress, parameters)."""
  seen = []
  given = config_lib.to_dict(config_lib.parse(raw))
  given['train']['steps'] = steps
  for key, value in changes.items():
    section, _, name = key.partition('__')
    given[section][name] = value
  hooks = [lambda trainer: seen.__setitem__(slice(None), [trainer])]
  progress = loop.train(config_lib.parse(given), str(workdir), hooks=hooks)
  return progress, jax.device_get(seen[0].state.params) if seen else None


@pytest.fixture(scope='module')
def runs(raw, tmp_path_factory):
  """{name: (folder, progress, parameters)} of a whole and an extended run."""
  folder = tmp_path_factory.mktemp('runs')
  whole = train(raw, folder / 'whole', 8)
  train(raw, folder / 'extended', 4)
  extended = train(raw, folder / 'extended', 8)
  return {
    'whole': (folder / 'whole', *whole),
    'extended': (folder / 'extended', *extended),
  }


def test_an_extended_run_is_bit_for_bit_the_longer_one(runs):
  (a, left, whole), (b, right, extended) = runs.values()
  for x, y in zip(*map(jax.tree.leaves, (whole, extended)), strict=True):
    np.testing.assert_array_equal(x, y)
  rows = [
    [(r['step'], r['split'], r['loss']) for r in metrics.read(folder)]
    for folder in (a, b)
  ]
  assert [r for r in rows[0] if r[1] == 'validation'] == [
    r for r in rows[1] if r[1] == 'validation'
  ]
  assert left.best_loss == right.best_loss and left.best_step == right.best_step
  assert right.finished == 'all steps' and right.planned_steps == 8
  assert json.loads((b / 'config.json').read_text())['train']['steps'] == 8


def test_a_finished_run_stays_finished_and_takes_no_fewer_steps(raw, runs):
  folder = runs['extended'][0]
  before = (folder / 'config.json').read_bytes()
  progress, params = train(raw, folder, 8)
  assert progress.finished == 'all steps' and params is None
  with pytest.raises(errors.InputError, match='train.steps=6: .* of 8 steps'):
    train(raw, folder, 6)
  with pytest.raises(errors.InputError, match='train.seed: 0 -> 1'):
    train(raw, folder, 9, train__seed=1)
  assert (folder / 'config.json').read_bytes() == before


def test_a_run_of_epochs_takes_their_steps_and_may_become_longer(raw, tmp_path):
  once, _ = train(raw, tmp_path, 0, train__epochs=0.5)
  steps = once.planned_steps
  assert once.finished == 'all steps' and steps > 1
  twice, _ = train(raw, tmp_path, 0, train__epochs=1.0)
  assert twice.planned_steps in (2 * steps - 1, 2 * steps)
  # What waits in buckets at the end isn't trained on.
  corpus = corpus_lib.Corpus.open(config_lib.parse(raw), tmp_path)
  examples = corpus.examples(config_lib.parse(raw).data, 'train', 0)
  tokens = np.sum(examples.lengths - 1)
  assert twice.real_tokens == pytest.approx(tokens, rel=0.15)
  row = next(r for r in metrics.read(tmp_path) if r['split'] == 'train')
  for group in ('embedding', 'stack/blocks', 'head'):
    assert 0 < row[f'update_norm/{group}'] <= row['update_norm']
    assert 0 < row[f'update_ratio/{group}'] < 1
  with pytest.raises(errors.InputError, match='train.epochs=0.5: .* of 1.0 ep'):
    train(raw, tmp_path, 0, train__epochs=0.5)


def make(name='cosine', steps=2000, **options):
  raw = config_lib.default(schedule=name)
  raw.train.steps = steps
  raw.schedule.update(warmup_steps=0, **options)
  return config_lib.parse(raw)


@pytest.mark.parametrize(
  ('config', 'text'),
  (
    (make('constant'), "schedule.name='constant' doesn't depend"),
    (make('inverse_sqrt'), "schedule.name='inverse_sqrt' doesn't depend"),
    (make(), 'now ends at step 2,000: the learning rate rises from 0.0001 to'),
    (make('linear'), 'rises from 0.000101 to 0.00055 and ends at 0.0001'),
    (make('stable_decay'), 'rises from 0.000109 to 0.001 and ends at'),
  ),
)
def test_the_line_says_what_the_rate_does(config, text):
  line = extend.describe(config, 1000, 1000)
  assert line.startswith('extended from 1,000 to 2,000 steps: ')
  assert text in line


def test_a_rate_that_evaluations_have_lowered_is_shown_so():
  line = extend.describe(make('linear'), 1000, 1000, scale=0.5)
  assert 'from 5.04e-05 to 0.000275 and ends at 5.02e-05' in line


@pytest.mark.parametrize(
  ('saved', 'before', 'finished', 'since'),
  (
    ({'finished': 'all steps', 'planned_steps': 1000}, 1000, '', 3),
    ({'finished': 'no better', 'planned_steps': 1000}, 1000, '', 0),
    ({'planned_steps': 1000}, 1000, '', 3),
    ({'finished': 'no better', 'planned_steps': 2000}, 0, 'no better', 3),
  ),
)
def test_what_had_ended_goes_on_and_has_its_patience(
  saved, before, finished, since
):
  progress = trainer_lib.Progress(evaluations_since_best=3, **saved)
  assert extend.extend(2000, progress) == before
  assert progress.finished == finished
  assert progress.evaluations_since_best == since
  assert progress.planned_steps == 2000
