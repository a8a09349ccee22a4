"""The commands of docs/start run, those of a page in order.

In a folder that has the checkout's configs, for a few steps of small models. A
page's Python blocks run in test_guides.py.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig

import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import model as model_lib
from rnn_jax.serving.http import service as service_lib
from tests.interop.formats.hf import folders
from tests.serving.http import served
from tests.support import bundles
from tests.support import guides
from tests.support import launchers
from tests.support import tiny

# In place of a page's steps, and smaller than a page's model.
SMALL = {
  'train.steps': 2,
  'data.batch_size': 4,
  'data.length': 64,
  'evaluate.every': 2,
  'evaluate.batch_size': 4,
  'metrics.writers': '()',
}
MODEL = {'model.width': 16, 'model.layers': 1}
OF_CONFIG = {
  'finetune': {},  # its model is the folder's
  'forecasting': MODEL | {'data.buckets': 1},
  'stdlib_bpe': MODEL
  | {'model.mlp_width': 16, 'data.vocabulary': 300, 'sample.new_tokens': 4},
  'stdlib_bytes': MODEL,
  'text_classification': MODEL | {'data.buckets': 1, 'data.vocabulary': 300},
}
# What a page has that isn't a command of ours, and what it does of it.
INSTALLS = {'git', 'make', 'source', 'pip'}
TURNS = 'Is the gate open?\nAnd the well?\n'  # typed into --chat


@pytest.fixture(name='folder')
def _folder(tmp_path, monkeypatch):
  """Where a user types: a folder with configs/. Python's library is small."""
  (tmp_path / 'configs').symlink_to(tiny.ROOT / 'configs')
  library = tmp_path / 'stdlib'
  library.mkdir()
  for n in range(12):
    text = f'def main(x):\n  """Adds {n} to x."""\n  return x + {n}\n' * 4
    (library / f'module{n}.py').write_text(text)
  path = sysconfig.get_path
  monkeypatch.setattr(
    sysconfig,
    'get_path',
    lambda name, *rest: str(library) if name == 'stdlib' else path(name, *rest),
  )
  return tmp_path


def steps(page):
  """Yields the command lines of a page of docs/start."""
  for _, line in guides.shell(guides.read(f'docs/start/{page}.md')):
    if line and not line.startswith(('{', '(')):
      yield line


def run(line, folder):
  """Runs a command line. Returns what it prints."""
  (command,) = guides.commands(f'    {line}')
  flags = [word.replace('FOLDER', 'folder') for word in command.words]
  config = re.search(r'--config=(\w+)', line)
  if command.name == 'train':
    small = SMALL | OF_CONFIG[config[1]]
    flags += [f'--config.{key}={value}' for key, value in small.items()]
  path = tiny.ROOT / 'launch' / f'{command.name}.py'
  code, out, err = launchers.run_file(path, *flags, stdin=TURNS, folder=folder)
  assert code == 0, f'{line}\n{err}'
  return out


def test_the_first_page_installs_and_looks(folder):
  lines = [*steps('install')]
  assert [line.split()[0] for line in lines[:-1]] == ['git', 'make', 'source']
  for target in re.findall(r'\bmake ([\w-]+)', guides.read('README.md')):
    assert f'\n{target}:' in (tiny.ROOT / 'Makefile').read_text()
  out = run(lines[-1], folder)
  assert 'jax' in out


@pytest.mark.slow
def test_a_language_model_is_trained_and_writes(folder):
  first, second, mine, write, score = steps('text')
  assert 'trained: all steps' in run(first, folder)
  assert run(second, folder).startswith('def main(')
  assert 'trained: all steps' in run(mine, folder)
  assert run(write, folder).startswith('The gate')
  assert 'gzip' in run(score, folder)


@pytest.mark.slow
def test_a_table_of_texts_becomes_a_classifier(folder):
  train, evaluate, predict = steps('classes')
  assert 'trained: all steps' in run(train, folder)
  assert 'accuracy' in run(evaluate, folder)
  written = {
    x.name for x in (folder / 'runs/tickets/evaluation/test').iterdir()
  }
  assert {'confusion_matrix.png', 'predictions.jsonl'} <= written
  run(predict, folder)
  samples = tiny.ROOT / 'configs/samples/tickets_unlabelled.csv'
  head, *rows = (folder / 'labelled.csv').read_text().splitlines()
  assert head.startswith(samples.read_text().splitlines()[0])
  assert len(rows) == 30


@pytest.mark.slow
def test_a_table_of_readings_is_forecast(folder):
  train, evaluate, forecast, anomalies = steps('series')
  assert 'trained: all steps' in run(train, folder)
  assert 'seasonal naive' in run(evaluate, folder)
  run(forecast, folder)
  head, *rows = (folder / 'forecast.csv').read_text().splitlines()
  assert head.count(',') == 1 + 9 and len(rows) == 2 * 48
  assert (folder / 'fan.png').read_bytes().startswith(b'\x89PNG')
  run(anomalies, folder)
  assert ',anomaly' in (folder / 'scored.csv').read_text().splitlines()[0]


@pytest.mark.slow
def test_a_folder_is_fine_tuned_and_written_back(folder):
  raw = config_lib.default('attention')
  raw.model.update(
    layers=1, width=12, mlp_width=16, norm_scale=True, norm_epsilon=1e-5
  )
  raw.model.head_bias = False
  raw.cell.update(heads=2, kv_heads=2, head_width=6)
  folders.export(bundles.make(raw, tokenizer_lib.Bytes()), folder / 'folder')
  page = guides.read('docs/start/pretrained.md')
  (message,) = re.findall(r'^    (\{.*?\]\})$', page, re.M | re.S)
  row = json.dumps(json.loads(message))
  (folder / 'messages.jsonl').write_text(12 * f'{row}\n')
  lines = [x for x in steps('pretrained') if x.startswith('python')]
  convert, write, train, chat, export = lines
  run(convert, folder)
  assert run(write, folder).startswith('The gate')
  assert 'trained: all steps' in run(train, folder)
  run(chat, folder)
  run(export, folder)
  back, before = (folders.stored(folder / x) for x in ('tuned', 'folder'))
  assert back.keys() == before.keys()
  assert any((back[name] != before[name]).any() for name in back)


def test_a_served_model_is_asked(folder):
  serve, ask = steps('serve')
  assert launchers.parse('serve', *shlex.split(serve)[3:])[0] == 0
  if shutil.which('curl') is None:
    pytest.skip('needs curl')
  model = model_lib.Model(
    bundles.make(tiny.raw_config('gone'), tokenizer_lib.Bytes())
  )
  made = service_lib.Service(model, service_lib.Options('demo'), served.ENGINE)
  with made.running(0.0) as service, served.address(service) as url:
    words = shlex.split(ask.replace('http://127.0.0.1:8000', url))
    environment = os.environ | {'NO_PROXY': '127.0.0.1'}
    result = subprocess.run(
      [*words, '--silent', '--show-error'],
      capture_output=True,
      check=True,
      env=environment,
    )
  answer = json.loads(result.stdout)
  assert answer['usage']['completion_tokens'] <= 50
  assert answer['choices'][0]['text']


def test_the_quick_starts_of_other_pages_are_these():
  """README.md and docs/index.md begin with the first commands of a page."""
  wanted = [*steps('text')][:2]
  for page in ('README.md', 'docs/index.md'):
    lines = [line for _, line in guides.shell(guides.read(page)) if line]
    found = [line for line in lines if 'launch.' in line][:2]
    assert found == wanted, page
  readme = [line for _, line in guides.shell(guides.read('README.md'))]
  for page in ('text', 'classes', 'series', 'pretrained', 'serve'):
    first = next(line for line in steps(page) if line.startswith('python'))
    assert first in readme, page
