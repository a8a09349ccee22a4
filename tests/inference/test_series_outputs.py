"""What is predicted of labelled series: alone, in evaluations, in files."""

import csv
import json

import jax
import numpy as np
import pandas as pd
import pytest

import rnn_jax
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples
from rnn_jax.evaluation import run as run_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import labelled_series
from tests.support import launchers
from tests.support import shared

TASKS = labelled_series.TASKS


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


@pytest.fixture(scope='module', name='runs')
def _runs(tmp_path_factory):
  """A run of each task, whose table is gone."""
  folder = tmp_path_factory.mktemp('runs')
  for task, label in TASKS.items():
    path = folder / 'series.csv'
    labelled_series.frame(label=label).to_csv(path, index=False)
    raw = labelled_series.raw_config(
      path, task, **{'model.bidirectional': True, 'data.window': 2}
    )
    loop.train(config_lib.parse(raw), folder / task)
    path.unlink()
  return folder


def new(label='class', **changes):
  return labelled_series.frame(5, seed=9, label=label, **changes)


@pytest.mark.parametrize('task', TASKS)
def test_a_prediction_is_the_model_s_and_does_not_depend_on_others(runs, task):
  model = rnn_jax.load(runs / task)
  frame = new().drop(columns='label')
  together = model.predict(frame)
  assert [each.name for each in together] == [f's{n:02}' for n in range(5)]
  bundle = model.bundle
  for each in together:
    own = frame[frame.unique_id == each.name]
    assert model.predict(own) == [each]
    scaled = labelled_examples.scaled(
      own[['a', 'b']].to_numpy(), bundle.tokenizer, bundle.config.data
    )
    built = model._predictor._model
    _, out = jax.jit(built.apply)(
      {'params': bundle.params},
      jax.tree.map(np.asarray, built.bind({}).init_state(1)),
      labelled_examples.windows(scaled, 2)[None],
    )
    out = np.asarray(out[0], np.float64)
    if task == 'series_regression':
      loc, scale = bundle.tokenizer.fitted['label']
      assert each.value == pytest.approx(loc + scale * out[-1, 0], rel=1e-4)
    elif task == 'series_tagging':
      wanted = [model.classes[n] for n in out.argmax(-1)]
      assert [*each.labels] == wanted
    else:
      p = np.exp(out[-1] - out[-1].max())
      assert [*each.probabilities.values()] == pytest.approx(p / p.sum(), 1e-4)
      assert each.label == model.classes[int(out[-1].argmax())]
  arrays = [
    frame[frame.unique_id == each.name][['a', 'b']].to_numpy().T
    for each in together
  ]
  for a, b in zip(together, model.predict(arrays), strict=True):
    assert (a.label, a.value, a.labels) == (b.label, b.value, b.labels)
  assert model.embed(frame).shape[0] == 5


@pytest.mark.parametrize('task', TASKS)
def test_evaluation_scores_what_is_predicted(runs, task, tmp_path):
  """On a file of its own; the command writes the same predictions."""
  path = tmp_path / 'new.csv'
  frame = new(TASKS[task])
  frame.to_csv(path, index=False)
  run, split = evaluate.Run.open_on(runs / task, str(path))
  row = run_lib.evaluate_run(run, tmp_path, split)
  lines = (tmp_path / 'evaluation' / split / 'predictions.jsonl').read_text()
  rows = [json.loads(line) for line in lines.splitlines()]
  made = rnn_jax.load(runs / task).predict(frame)
  out = tmp_path / 'predicted.csv'
  code, _, err = launchers.run(
    'predict', f'--workdir={runs / task}', f'--input={path}', f'--output={out}'
  )
  assert code == 0, err
  with open(out) as opened:
    written = [*csv.DictReader(opened)]
  if task == 'series_classification':
    hits = [x['label'] == x['predicted'] for x in rows]
    assert row['accuracy'] == pytest.approx(np.mean(hits))
    assert [x['predicted'] for x in rows] == [x.label for x in made]
    assert [x['label'] for x in written] == [x.label for x in made]
    assert {*written[0]} == {
      'id',
      'label',
      'probability_rising',
      'probability_falling',
    }
  elif task == 'series_regression':
    error = [x['label'] - x['predicted'] for x in rows]
    assert row['rmse'] == pytest.approx(np.sqrt(np.mean(np.square(error))))
    values = [x.value for x in made]
    assert [x['predicted'] for x in rows] == values
    assert [float(x['value']) for x in written] == values
  else:
    hits = [
      a == b
      for x in rows
      for a, b in zip(x['labels'], x['predicted'], strict=True)
    ]
    assert row['accuracy'] == pytest.approx(np.mean(hits))
    labels = [label for x in made for label in x.labels]
    assert [x['label'] for x in written] == labels
    assert [x['step'] for x in written] == [*map(str, frame.ds)]
  assert 'loss' in row and run_lib.table(row)


def test_a_series_longer_than_those_of_training_is_evaluated(runs, tmp_path):
  frame = new()
  more = frame[frame.unique_id == 's00'].copy()
  more['ds'] += 100
  longer = pd.concat([frame, more]).sort_values(['unique_id', 'ds'])
  longer.to_csv(tmp_path / 'new.csv', index=False)
  given = runs / 'series_classification', str(tmp_path / 'new.csv')
  run, split = evaluate.Run.open_on(*given)
  loss = run.evaluate(split)['loss']
  rows = rnn_jax.load(given[0]).predict(longer)
  labels = longer.groupby('unique_id').label.first()
  p = [each.probabilities[labels[each.name]] for each in rows]
  assert loss == pytest.approx(-np.mean(np.log(p)), rel=1e-4)


def test_wrong_input_is_refused_in_a_line(runs, tmp_path):
  model = rnn_jax.load(runs / 'series_classification')
  frame = new()
  for given, says in (
    (frame.drop(columns='b'), "channels='b': the frame has the columns"),
    (np.ones((2, 3, 5)), '3 channels, and the others, or the run, 2'),
    ('a text', 'frame=str'),
    (frame.assign(a=np.nan, b=np.nan), 'all readings of series'),
  ):
    with pytest.raises(errors.InputError, match=says):
      model.predict(given)
  path = tmp_path / 'new.csv'
  frame.assign(label='sideways').to_csv(path, index=False)
  for command, flags, says in (
    ('evaluate', (), "is 'sideways', and data.classes"),
    ('predict', ('--text=a',), '--text='),
    ('forecast', (), 'forecasts no series'),
  ):
    code, _, err = launchers.run(
      command,
      f'--workdir={runs / "series_classification"}',
      f'--input={path}',
      *flags,
    )
    assert code and says in err
  with pytest.raises(errors.InputError, match='predicts a class, not text'):
    model.generate('a')
  with pytest.raises(errors.InputError, match='no probabilities'):
    rnn_jax.load(runs / 'series_tagging').predict(frame, threshold=0.5)


def test_a_temperature_is_fitted_as_of_texts(runs, tmp_path):
  path = tmp_path / 'new.csv'
  frame = labelled_series.frame(20, seed=4)
  made = rnn_jax.load(runs / 'series_classification').predict(frame)
  labels = {each.name: each.label for each in made}
  for name in ('s01', 's10', 's13'):  # else it would always be right
    (labels[name],) = {*labelled_series.CLASSES} - {labels[name]}
  frame['label'] = frame.unique_id.map(labels)
  frame.to_csv(path, index=False)
  code, out, err = launchers.run(
    'evaluate',
    f'--workdir={runs / "series_classification"}',
    f'--input={path}',
    '--calibrate',
    '--json',
  )
  assert code == 0, err
  assert json.loads(out)['documents'] == 20


def test_documents_hold_what_they_are_given():
  values = np.array([[1.0, np.nan], [3.0, 4.0]])
  given = labelled.Series('a', values, None, None, '')
  reader = labelled.InMemory([given], [np.array([2.0])], True)
  read = labelled.content(reader.read(0, 0, int(reader.sizes[0])))
  np.testing.assert_array_equal(read.values_LxC, values)
  assert read.targets_T.tolist() == [2] and reader.labels.tolist() == [2]
