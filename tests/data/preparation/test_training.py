"""The command that trains on what was prepared."""

import json
import shlex

import PIL.Image
import pytest

from rnn_jax.data.preparation import prepare
from rnn_jax.data.preparation import requests
from rnn_jax.data.preparation import training


def flags(tmp_path, name, inputs, **options):
  """Returns {flag: value} of the command, without those that all have."""
  request = requests.Request(name, str(tmp_path), inputs, **options)
  record, _ = prepare.prepare(request)
  line = training.command(request, record)
  assert '\n' not in line
  if not line:
    return None
  python, m, launcher, *rest = shlex.split(line)
  assert (python, m, launcher) == ('python', '-m', 'launch.train')
  found = dict(flag.split('=', 1) for flag in rest)
  assert found.pop('--config.data.source') == f'tfds:{name}'
  assert found.pop('--config.data.data_dir') == str(tmp_path)
  assert found.pop('--workdir') == f'runs/{name}'
  return found


SPLITS = '(90, 10, 0)'  # where the dataset has no validation split
KINDS = {
  'classes': (
    {'id': 'r{}', 'text': 'a {}', 'label': 'xy', 'title': 'some longer {}'},
    {'--config': 'configs/text_classification.py'},
  ),
  'longest': (
    # Each has as many words in all rows.
    {'brief': 'a {}', 'story': 'some longer text {}', 'label': 'xy'},
    {
      '--config': 'configs/text_classification.py',
      '--config.data.field': 'story',
    },
  ),
  'texts': ({'text': 'a {}'}, {'--config': 'configs/stdlib_bytes.py'}),
  'turns': (
    {'id': 'r{}', 'turns': ['a {}', 'b']},
    {'--config': 'configs/daily_dialog.py'},
  ),
  'others': (
    {'lines': ['a {}', 'b']},
    {'--config': 'configs/daily_dialog.py', '--config.data.field': 'lines'},
  ),
  'numbers': ({'x': 0.5, 'label': 'xy'}, None),
}


def row(form, n):
  values = {}
  for name, value in form.items():
    if name == 'label':
      values[name] = value[n % 2]
    elif isinstance(value, list):
      values[name] = [item.format(n) for item in value]
    else:
      values[name] = value.format(n) if isinstance(value, str) else value + n
  return values


@pytest.mark.parametrize('kind', KINDS)
def test_the_columns_decide_the_config(tmp_path, kind):
  form, expected = KINDS[kind]
  path = tmp_path / 'rows.jsonl'
  path.write_text('\n'.join(json.dumps(row(form, n)) for n in range(4)))
  got = flags(tmp_path, kind, (f'train={path}',))
  if expected is not None:
    expected = expected | {'--config.data.splits': SPLITS}
  assert got == expected
  if kind == 'classes':
    both = f'train={path}', f'validation={path}'
    assert '--config.data.splits' not in flags(tmp_path, 'both', both)


@pytest.mark.parametrize(
  ('mode', 'sizes', 'config', 'size', 'resize'),
  (
    ('L', [(8, 8)], 'digits_bdh', '8', 'False'),
    ('RGB', [(8, 8), (8, 9)], 'cifar10_bdh', '8', 'True'),
    ('RGB', [(10, 10)], 'cifar10_bdh', '32', 'True'),
  ),
)
def test_images_have_their_size(tmp_path, mode, sizes, config, size, resize):
  for n in range(4):
    path = tmp_path / 'raw/train' / 'ab'[n % 2] / f'{n}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new(mode, sizes[n % len(sizes)], n).save(path)
  assert flags(tmp_path, 'pictures', (str(tmp_path / 'raw'),)) == {
    '--config': f'configs/{config}.py',
    '--config.data.classes': '()',
    '--config.data.image.size': size,
    '--config.data.image.resize': resize,
    '--config.data.splits': SPLITS,
  }


def test_a_path_with_spaces_is_one_word(tmp_path):
  path = tmp_path / 'rows.jsonl'
  path.write_text('{"text": "a"}\n{"text": "b"}')
  assert flags(tmp_path / "my data's", 'toy', (f'train={path}',))


def test_configs_elsewhere_are_named_by_their_path(tmp_path, monkeypatch):
  path = tmp_path / 'rows.jsonl'
  path.write_text('{"text": "a"}\n{"text": "b"}')
  monkeypatch.chdir(tmp_path)
  got = flags(tmp_path, 'toy', (f'train={path}',))
  assert got['--config'] == str(training.CONFIGS / 'stdlib_bytes.py')
  assert training.CONFIGS.joinpath('stdlib_bytes.py').is_file()
