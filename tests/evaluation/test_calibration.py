"""A temperature, scores of probabilities and thresholds, against NumPy."""

import csv
import json
import math
import os

import numpy as np
import pytest

import rnn_jax
from rnn_jax import errors
from rnn_jax.evaluation import calibration
from rnn_jax.evaluation import reliability
from rnn_jax.inference import classify
from rnn_jax.runs import calibration as calibration_lib
from rnn_jax.runs import workdir as workdir_lib
from tests.support import classifiers
from tests.support import launchers

TEXTS = classifiers.texts(48)


def drawn(count=2000, classes=4, temperature=2.5, seed=0):
  """Logits that are `temperature` times those which labels are drawn from."""
  rng = np.random.default_rng(seed)
  z = rng.normal(0, 2, (count, classes))
  p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
  labels = (p.cumsum(-1) < rng.random((count, 1))).sum(-1)
  return np.float32(temperature * z), labels


def nll(logits, labels, temperature):
  """By a loop, from the definition."""
  total = 0.0
  for row, label in zip(np.float64(logits) / temperature, labels, strict=True):
    total += math.log(sum(math.exp(x - row[label]) for x in row))
  return total / len(labels)


@pytest.mark.parametrize('temperature', (0.2, 1.0, 2.5, 40.0))
def test_the_temperature_of_least_loss_is_found(temperature):
  logits, labels = drawn(temperature=temperature)
  fitted = calibration.fit(logits, labels)
  assert fitted == pytest.approx(temperature, rel=0.1)  # measured: 0.04
  best = nll(logits, labels, fitted)
  for near in (0.999, 0.99, 1.01, 1.001):
    assert best < nll(logits, labels, near * fitted)
  assert best == pytest.approx(
    reliability.quality(logits, labels, fitted)['nll'], rel=1e-12
  )


def test_no_temperature_fits_what_is_all_right_or_says_nothing():
  logits, _ = drawn(50)
  with pytest.raises(errors.InputError, match='all of 50 examples are pred'):
    calibration.fit(logits, logits.argmax(-1))
  with pytest.raises(errors.InputError, match='says nothing about'):
    calibration.fit(logits, logits.argmin(-1))
  with pytest.raises(errors.InputError, match='all of 2 .*|says nothing'):
    calibration.fit(np.zeros((2, 3), np.float32), np.array([0, 1]))


def ece(confidence, hits, edges):
  """By a loop over bins (low, high]."""
  total = 0.0
  for low, high in zip(edges[:-1], edges[1:], strict=True):
    inside = [n for n, c in enumerate(confidence) if low < c <= high]
    if inside:
      gap = np.mean(hits[inside]) - np.mean(confidence[inside])
      total += len(inside) / len(hits) * abs(gap)
  return total


def test_scores_of_probabilities_equal_their_definitions():
  logits, labels = drawn(301)
  scores = reliability.quality(logits, labels, 1.7)
  z = np.float64(logits) / 1.7
  p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
  confidence, hits = p.max(-1), p.argmax(-1) == labels
  wanted = ece(confidence, hits, np.linspace(0, 1, 16))
  assert scores['ece'] == pytest.approx(wanted, rel=1e-9)
  onehot = np.eye(4)[labels]
  given = p.copy()
  reliability.brier(p, labels)
  np.testing.assert_array_equal(p, given)
  assert scores['brier'] == pytest.approx(((p - onehot) ** 2).sum(-1).mean())
  parts = np.array_split(np.argsort(confidence), 15)
  adaptive = sum(
    len(own) / 301 * abs(hits[own].mean() - confidence[own].mean())
    for own in parts
  )
  assert scores['adaptive_ece'] == pytest.approx(adaptive, rel=1e-9)
  right = reliability.equal_width(np.array([1.0, 0.2, 0.0]), np.ones(3, bool))
  assert [*np.flatnonzero(right.counts)] == [0, 2, 14]


def test_calibrated_probabilities_keep_their_order_and_sum():
  logits, _ = drawn(64, temperature=100)
  for temperature in (0.01, 1.0, 7.0, 100.0):
    p = classify.calibrated(logits, temperature)
    assert p.dtype == np.float32 and np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-6)
    z = np.float64(logits) / temperature
    z -= z.max(-1, keepdims=True)
    wanted = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    np.testing.assert_allclose(p, wanted, rtol=1e-6, atol=1e-38)


def test_a_table_of_thresholds_is_a_count_by_hand():
  labels = np.array([0, 0, 0, 1, 1])
  predicted = np.array([0, 0, 1, 1, 0])
  confidence = np.array([0.95, 0.55, 0.65, 0.85, 0.75])
  rows = calibration.thresholds(confidence, predicted, labels, ('a', 'b'))
  by = {(row['threshold'], row['class']): [*row.values()][2:] for row in rows}
  assert by[0.0, '(all)'] == pytest.approx([3 / 5, 3 / 5, 6 / 10, 1])
  assert by[0.7, '(all)'] == pytest.approx([2 / 3, 2 / 5, 4 / 8, 3 / 5])
  assert by[0.7, 'a'] == pytest.approx([1 / 2, 1 / 3, 2 / 5, 2 / 5])
  assert by[0.7, 'b'] == pytest.approx([1, 1 / 2, 2 / 3, 1 / 5])
  assert by[0.9, 'b'] == [None, 0, 0, 0]
  assert by[0.99, '(all)'] == [None, 0, 0, 0]


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
  return classifiers.write_texts(tmp_path_factory.mktemp('runs') / 'texts')


@pytest.fixture(scope='module', name='rows')
def _rows(run):
  """A file of rows, most of which have the class that the run predicts."""
  path = run.parent / 'rows.jsonl'
  labels = [each.label for each in rnn_jax.load(run).predict(TEXTS)]
  lines = [
    {'text': text, 'label': 'fair' if n % 5 == 0 else label}
    for n, (text, label) in enumerate(zip(TEXTS, labels, strict=True))
  ]
  path.write_text('\n'.join(map(json.dumps, lines)))
  return path


def test_a_calibration_is_kept_and_used(run, rows, tmp_path):
  before = rnn_jax.load(run).predict(TEXTS)
  flags = f'--workdir={run}', f'--input={rows}'
  code, out, err = launchers.run('evaluate', *flags, '--calibrate', '--json')
  assert code == 0, err
  row = json.loads(out)
  T = row['temperature']
  kept = json.loads((run / calibration_lib.NAME).read_text())
  assert kept['temperature'] == T != 1
  assert row['after']['nll'] < row['before']['nll']
  folder = run / 'evaluation' / rows.name
  assert json.loads((folder / 'calibration.json').read_text()) == row
  assert (folder / 'reliability.png').stat().st_size > 5000
  with open(folder / 'thresholds.csv', newline='') as file:
    table = [*csv.DictReader(file)]
  assert len(table) == len(row['thresholds'])

  after = rnn_jax.load(run).predict(TEXTS)
  assert [x.label for x in after] == [x.label for x in before]
  # p^(1 / T), normalized, is softmax(logits / T).
  p = np.array([[*x.probabilities.values()] for x in before]) ** (1 / T)
  p /= p.sum(-1, keepdims=True)
  given = np.array([[*x.probabilities.values()] for x in after])
  np.testing.assert_allclose(given, p, rtol=1e-5)

  code, out, err = launchers.run('predict', *flags)
  assert code == 0, err
  lines = classifiers.read_rows(out)
  assert [x['probabilities'] for x in lines] == [x.probabilities for x in after]
  code, out, err = launchers.run('evaluate', *flags, '--json')
  assert code == 0, err
  scored = json.loads(out)
  assert scored['temperature'] == T
  for name in ('ece', 'brier'):
    assert scored[name] == pytest.approx(row['after'][name], abs=1e-6)
  least = float(np.median(given.max(-1)))
  code, out, err = launchers.run('predict', *flags, f'--threshold={least}')
  assert code == 0, err
  labels = [x['label'] for x in classifiers.read_rows(out)]
  wanted = [
    x.label if max(x.probabilities.values()) >= least else None for x in after
  ]
  assert labels == wanted and None in labels and set(labels) != {None}
  text = calibration.table(row)
  assert 'temperature' in text and '(all)' not in text


def test_another_checkpoint_is_not_calibrated_and_says_so(
  run, rows, tmp_path, caplog
):
  other = classifiers.write_texts(tmp_path / 'other', pooling='max')
  plain = rnn_jax.load(other).predict(TEXTS[:3])
  launchers.run(
    'evaluate', f'--workdir={run}', f'--input={rows}', '--calibrate'
  )
  theirs = (run / calibration_lib.NAME).read_text()
  (other / calibration_lib.NAME).write_text(theirs)
  assert rnn_jax.load(other).predict(TEXTS[:3]) == plain
  assert 'was fitted on another checkpoint' in caplog.text
  kept = calibration_lib.read(run)
  calibration_lib.write(
    calibration_lib.Calibration(2.0, 7, kept.sha256, 'test', 9), other
  )
  assert rnn_jax.load(other).predict(TEXTS[:3]) == plain
  assert 'was fitted on step 7, and this is step 0' in caplog.text


VALUES = {
  'temperature': 2.0,
  'step': 0,
  'sha256': 64 * 'a',
  'split': 'validation',
  'documents': 3,
}
HOSTILE = (
  {'temperature': 0.0},
  {'temperature': -1.0},
  {'temperature': 1e9},
  {'temperature': 2},
  {'temperature': True},
  {'temperature': '2'},
  {'temperature': None},
  {'temperature': [2.0]},
  {'step': -1},
  {'step': 1.0},
  {'documents': 0},
  {'sha256': 'A' * 64},
  {'sha256': '../../x'},
  {'split': 'x' * 300},
  {'more': 1},
)


@pytest.mark.parametrize('changed', HOSTILE, ids=str)
def test_values_of_a_stranger_are_refused(run, tmp_path, changed):
  values = VALUES | changed
  text = json.dumps(values | {'seal': calibration_lib.seal(values)})
  (tmp_path / calibration_lib.NAME).write_text(text)
  with pytest.raises(errors.InputError, match='is damaged .*: remove it, or'):
    calibration_lib.read(tmp_path)


@pytest.mark.parametrize(
  'text',
  (
    '',
    '[]',
    '{',
    'null',
    '{"temperature": NaN}',
    '9' * 5000,
    '\x00',
    '[' * 9**5,
  ),
)
def test_what_is_no_calibration_is_refused(tmp_path, text):
  (tmp_path / calibration_lib.NAME).write_text(text)
  with pytest.raises(errors.InputError, match='is damaged') as caught:
    calibration_lib.read(tmp_path)
  assert '\n' not in str(caught.value) and len(str(caught.value)) < 600


def test_a_flipped_digit_is_noticed(tmp_path):
  calibration_lib.write(calibration_lib.Calibration(**VALUES), tmp_path)
  path = tmp_path / calibration_lib.NAME
  assert calibration_lib.read(tmp_path) == calibration_lib.Calibration(**VALUES)
  path.write_text(path.read_text().replace('2.0', '3.0'))
  with pytest.raises(errors.InputError, match='values and its seal differ'):
    calibration_lib.read(tmp_path)


def test_what_cannot_be_calibrated_is_refused_at_once(run, rows, tmp_path):
  word = classifiers.write_texts(tmp_path / 'word', answer='word')
  before = (run / workdir_lib.CONFIG).read_text()
  for folder, flags, message in (
    (run, ('--split=test',), "--split='test': a temperature is fitted on the"),
    (run, ('--split=train',), "--split='train': a temperature is fitted on"),
    (run, ('--limit=3',), '--limit=3: it has no effect with --calibrate'),
    (run, ('--bertscore=x',), "--bertscore='x': it has no effect with --cal"),
    (word, (), "task.name='classification' has no probabilities of classes"),
  ):
    code, _, err = launchers.run(
      'evaluate', f'--workdir={folder}', '--calibrate', *flags
    )
    assert code == 1 and message in err and 'Traceback' not in err, err
  for folder, least, message in (
    (run, '1.5', 'threshold=1.5: give a probability, from 0 to 1'),
    (run, 'nan', 'threshold=nan: give a probability'),
    (word, '0.5', 'threshold=0.5: the model has no probabilities'),
  ):
    flags = f'--workdir={folder}', f'--input={rows}', f'--threshold={least}'
    code, _, err = launchers.run('predict', *flags)
    assert code == 1 and message in err and 'Traceback' not in err, err
  assert (run / workdir_lib.CONFIG).read_text() == before


def test_only_a_file_of_the_folder_is_read(tmp_path):
  path = tmp_path / 'run' / calibration_lib.NAME
  path.parent.mkdir()
  assert calibration_lib.read(path.parent) is None
  other = tmp_path / 'other'
  other.mkdir()
  calibration_lib.write(calibration_lib.Calibration(**VALUES), other)
  for make in (
    path.mkdir,
    lambda: os.mkfifo(path),
    lambda: path.symlink_to('/dev/zero'),
    lambda: path.symlink_to(path.name),
    lambda: path.symlink_to('nothing'),
    lambda: path.symlink_to(other / calibration_lib.NAME),
    lambda: path.write_bytes(b' ' * 2**17),
  ):
    make()
    with pytest.raises(errors.InputError, match='calibration.json.*: remove'):
      calibration_lib.read(path.parent)
    if path.is_dir():
      with pytest.raises(errors.InputError, match='is a folder: remove it'):
        calibration_lib.check_writable(path.parent)
      path.rmdir()
    else:
      path.unlink()
