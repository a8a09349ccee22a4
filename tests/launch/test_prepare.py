"""The launcher as typed."""

import json
import os
import shlex
import subprocess
import sys
import time

import pytest

from tests.support import launchers
from tests.support import shared
from tests.support import tiny

READ = """
import sys
import tensorflow_datasets as tfds
builder = tfds.builder_from_directory(sys.argv[1])
print(sum(len(example['text']) > 0 for example in
          builder.as_data_source('train')))
assert 'tensorflow' not in sys.modules and 'rnn_jax' not in sys.modules
"""


@pytest.fixture(autouse=True, scope='module')
def _shared():
  with shared.programs():
    yield


@pytest.fixture(name='raw')
def _raw(tmp_path):
  rows = [{'text': f'review {n}', 'label': n % 2} for n in range(40)]
  path = tmp_path / 'raw.jsonl'
  path.write_text('\n'.join(map(json.dumps, rows)))
  return path


def test_prepares_once_and_others_read_it(raw, tmp_path):
  arguments = (
    '--name=toy',
    f'--input={raw}',
    '--splits=85,10,5',
    f'--data_dir={tmp_path}/data',
  )
  code, out, err = launchers.run('prepare', *arguments)
  assert code == 0, err
  folder = f'{tmp_path}/data/toy/1.0.0'
  assert out.startswith(f'{folder}: written\n  train              34')
  code, out, err = launchers.run('prepare', *arguments)
  assert code == 0, err
  assert out.startswith(f'{folder}: exists, nothing to do\n')
  read = subprocess.run(
    [sys.executable, '-c', READ, folder],
    check=False,
    capture_output=True,
    text=True,
    cwd=tmp_path,
  )
  assert read.stdout == '34\n', read.stderr


def test_a_dash_is_standard_input(raw, tmp_path):
  flags = '--name=toy', '--splits=85,10,5', f'--data_dir={tmp_path}/data'
  given = *flags, '--input=-', '--format=jsonl'
  code, out, err = launchers.run('prepare', *given, stdin=raw.read_text())
  assert code == 0, err
  assert out.startswith(f'{tmp_path}/data/toy/1.0.0: written\n')
  # A file is its content, wherever that came from.
  code, out, _ = launchers.run('prepare', *flags, f'--input={raw}', given[-1])
  assert code == 0 and 'exists, nothing to do' in out


def test_a_bad_line_is_one_line_of_error(raw, tmp_path):
  raw.write_text('{"text": "a", "label": 1}\n{"text": "b"\n')
  arguments = '--name=toy', f'--input={raw}', f'--data_dir={tmp_path}/data'
  code, _, err = launchers.run('prepare', *arguments)
  assert code == 1
  last = err.strip().splitlines()[-1]
  assert f'error: {raw}:2: not JSON' in last
  assert 'Traceback' not in err
  assert not os.path.exists(f'{tmp_path}/data/toy/1.0.0')


def test_an_error_has_a_line_of_its_own_after_a_bar(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('text;label\n' + 'a;b\n' * 9 + 'a;b;c\n')
  code, _, err = launchers.run(
    'prepare',
    '--name=toy',
    f'--input={path}',
    '--splits=85,10,5',
    f'--data_dir={tmp_path}/data',
  )
  assert code == 1 and 'checking' in err
  last = err.splitlines()[-1]
  assert last.startswith('error: ') and "separated by ';'" in last


def test_a_table_of_a_spreadsheet_is_prepared(tmp_path):
  path = tmp_path / 'a.csv'
  rows = ''.join(f'text {n}|{"ab"[n % 2]}|\n' for n in range(40))
  path.write_text(f'body|kind|note\n{rows}last||\n|a|\n')
  code, out, err = launchers.run(
    'prepare',
    '--name=toy',
    f'--input={path}',
    '--splits=85,10,5',
    f'--data_dir={tmp_path}/data',
    '--delimiter=|',
    '--label=kind',
    '--missing_labels=skip',
    '--skip_empty',
  )
  assert code == 0, err
  assert '34 examples' in out
  assert '1 example(s) skipped: no label' in out
  assert '1 example(s) skipped: empty text' in out


def test_the_runner_and_its_options_are_flags(raw, tmp_path):
  flags = '--name=toy', f'--input={raw}', f'--data_dir={tmp_path}/data'
  code, _, err = launchers.run('prepare', *flags, '--runner_options=--x=1')
  assert code == 1 and "error: --runner_options='--x=1': these are" in err
  code, _, err = launchers.run('prepare', *flags, '--runner=NoRunner')
  assert code == 1 and "error: --runner='NoRunner'" in err


def test_killed_half_way_it_leaves_no_dataset(tmp_path):
  path = tmp_path / 'many.txt'
  path.write_text('\n'.join(f'line {n}' for n in range(50_000)))
  flags = f'--input=train={path}', f'--data_dir={tmp_path}/data'
  child = tiny.launch('prepare', '--name=toy', *flags)
  folder = tmp_path / 'data' / 'toy'
  while not any(folder.glob('.1.0.0.partial/*')):
    assert child.poll() is None, child.communicate()
    time.sleep(0.01)
  child.kill()
  child.communicate()
  assert not (folder / '1.0.0').exists()
  raw = tmp_path / 'few.txt'
  raw.write_text('one\ntwo\n')
  arguments = f'--input=train={raw}', f'--data_dir={tmp_path}/data'
  code, _, err = launchers.run('prepare', '--name=toy', *arguments)
  assert code == 0, err
  assert [path.name for path in folder.iterdir()] == ['1.0.0']


SMALL = {
  'data.vocabulary': 280,
  'data.length': 16,
  'data.buckets': 1,
  'data.batch_size': 8,
  'model.width': 16,
  'schedule.warmup_steps': 1,
  'train.steps': 8,
  'evaluate.every': 8,
}


def test_the_last_line_trains_a_classifier_whose_predictions_have_ids(tmp_path):
  rows = [f'T-{n},{"ab"[n % 2] * 3} {n},{"ab"[n % 2]},x' for n in range(40)]
  raw, work = tmp_path / 'my tickets.csv', tmp_path / 'run'
  raw.write_text('id,note,label,other\n' + '\n'.join(rows))
  code, out, err = launchers.run(
    'prepare',
    '--name=tickets',
    f'--input={raw}',
    '--splits=80,0,20',  # nothing to evaluate in training
    f'--data_dir={tmp_path}/my data',
  )
  assert code == 0, err
  command = shlex.split(out.splitlines()[-1])
  assert command[:3] == ['python', '-m', 'launch.train']
  flags = [f'--config.{key}={value}' for key, value in SMALL.items()]
  train = 'train', *command[3:], *flags, f'--workdir={work}'
  code, out, err = launchers.run(*train)
  assert code == 0, err
  assert "resolved data.classes=('a', 'b'), data.label='label' (from " in out
  data = json.loads((work / 'config.json').read_text())['data']
  assert data['classes'] == ['a', 'b']
  assert (data['field'], data['label']) == ('note', 'label')
  # The same command leaves the classes to the data again, and resumes.
  code, out, err = launchers.run(*train)
  assert code == 0 and 'resumed at step 8' in out, err
  code, out, err = launchers.run('evaluate', f'--workdir={work}')
  assert code == 0, err
  path = work / 'evaluation/test/predictions.jsonl'
  predictions = [json.loads(line) for line in path.read_text().splitlines()]
  assert len(predictions) == 8
  for row in predictions:
    n = int(row['name'].removeprefix('T-'))
    assert row['text'] == f'{"ab"[n % 2] * 3} {n}'
    assert row['label'] == 'ab'[n % 2]
