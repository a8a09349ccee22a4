"""Pictures as a user trains on them: prepared, trained, evaluated."""

import json

import numpy as np
import PIL.Image
import pytest

from tests.support import launchers
from tests.support import shared

CLASSES = ('dark', 'light')


@pytest.fixture(autouse=True, scope='module')
def _shared():
  with shared.programs():
    yield


def write_pictures(folder):
  rng = np.random.default_rng(0)
  for split, count in (('train', 24), ('test', 6)):
    for label, level in zip(CLASSES, (60, 190), strict=True):
      path = folder / split / label
      path.mkdir(parents=True)
      for n in range(count):
        noise = rng.integers(-50, 50, (8, 8, 3))
        pixels = (level + noise).astype(np.uint8)
        PIL.Image.fromarray(pixels).save(path / f'{n}.png')


def keys(data):
  """Those that make configs/cifar10_bdh.py small."""
  small = {
    'data.source': 'tfds:pictures',
    'data.data_dir': data,
    'data.classes': repr(CLASSES),
    'data.splits': '(100, 0, 0)',  # nothing to evaluate in training
    'data.image.size': 8,
    'data.image.crop': 1,
    'data.batch_size': 8,
    'data.workers': 0,
    'model.width': 8,
    'model.layers': 2,
    'cell.heads': 2,
    'cell.neurons': 8,
    'optimizer.learning_rate': 0.01,
    'schedule.warmup_steps': 2,
    'train.steps': 12,
    'train.log_every': 6,
    'evaluate.every': 12,
    'evaluate.batch_size': 8,
  }
  return [f'--config.{key}={value}' for key, value in small.items()]


def test_pictures_are_prepared_trained_on_and_evaluated(tmp_path):
  raw, data, work = (tmp_path / name for name in ('raw', 'data', 'run'))
  write_pictures(raw)
  flags = '--name=pictures', f'--input={raw}', f'--data_dir={data}'
  code, out, err = launchers.run('prepare', *flags)
  assert code == 0, err
  assert (data / 'pictures/1.0.0').is_dir()
  train = 'train', '--config=configs/cifar10_bdh.py', f'--workdir={work}'
  code, out, err = launchers.run(*train, *keys(data))
  assert code == 0, err
  assert 'images/s' in out and 'batches: images, 1 shape: 8x1' in out
  flags = f'--workdir={work}', '--json'
  code, out, err = launchers.run('evaluate', *flags)
  assert code == 0, err
  row = json.loads(out)
  assert row['split'] == 'test' and row['documents'] == 12
  assert np.sum(row['confusion_matrix']) == 12
  assert row['accuracy'] > 0.9  # light or dark
  lines = (work / 'evaluation/test/predictions.jsonl').read_text().splitlines()
  first = json.loads(lines[0])
  assert first['name'] == 'pictures/test:0' and first['label'] in CLASSES
  assert sum(first['probabilities'].values()) == pytest.approx(1, abs=1e-5)
  assert (work / 'evaluation/test/confusion_matrix.png').exists()
  check_other_images(raw, data, work)


def check_other_images(raw, data, work):
  """The folder of the test split and the prepared split are the same images."""
  by_input = {}
  for given, name in (
    (raw / 'test', 'test.input'),
    (data / 'pictures', 'pictures.test'),
  ):
    flags = f'--workdir={work}', f'--input={given}'
    code, _, err = launchers.run('evaluate', *flags)
    assert code == 0, err
    lines = (work / 'evaluation' / name / 'predictions.jsonl').open()
    by_input[name] = [json.loads(line)['probabilities'] for line in lines]
  flags = f'--workdir={work}', f'--input={raw / "test"}'
  code, out, err = launchers.run('predict', *flags)
  assert code == 0, err
  rows = [json.loads(line) for line in out.splitlines()]
  assert rows[0]['id'] == 'dark/0.png' and rows[0]['label'] == 'dark'
  assert [row['probabilities'] for row in rows] == by_input['test.input']

  def ordered(name):
    return sorted(map(tuple, map(dict.items, by_input[name])))

  assert ordered('test.input') == ordered('pictures.test')


def test_a_patch_that_does_not_fit_is_one_line(tmp_path):
  code, out, err = launchers.run(
    'train',
    '--config=configs/digits_bdh.py',
    '--config.vision.patch=3',
    f'--workdir={tmp_path}',
  )
  assert (code, out) == (1, '')
  assert err.splitlines()[-1] == (
    'error: vision.patch=3: it must divide data.image.size=8'
  )
