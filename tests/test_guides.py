"""The Python blocks of the guides run, those of a page in order.

A page's blocks share their names and a temporary folder, which has what the
page says is there: runs of small models with random parameters, or tables. A
block that can't run has a comment above it with the reason
(tests/support/guides.py).
"""

import contextlib
import shutil

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import model as model_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving.http import service as service_lib
from tests.serving.http import served
from tests.support import bundles
from tests.support import classifiers
from tests.support import compiled
from tests.support import guides
from tests.support import launchers
from tests.support import series
from tests.support import tiny

LANGUAGES = {
  *('', 'bash', 'ini', 'json', 'mermaid', 'python', 'sh', 'text', 'yaml'),
  '{toctree}',
}
PORT = '127.0.0.1:8000'


def write(folder, name, raw):
  """Writes the run of a model with random parameters. Returns its folder."""
  run = folder / 'runs' / name
  bundle_lib.write(bundles.make(raw, tokenizer_lib.Bytes()), run)
  return run


@contextlib.contextmanager
def _language_model(folder, name='demo'):
  write(folder, name, tiny.raw_config('gone'))
  yield {}


@contextlib.contextmanager
def _mine(folder):
  with _language_model(folder, 'mine') as names:
    yield names


@contextlib.contextmanager
def _classifier(folder, name='tickets'):
  classifiers.write_texts(folder / 'runs' / name)
  yield {}


@contextlib.contextmanager
def _both(folder):
  with _language_model(folder), _classifier(folder):
    yield {}


@contextlib.contextmanager
def _three_models(folder):
  raw = tiny.raw_config('gone')
  raw.task.update(name='dialogue', reply_tokens=8)
  raw.data.update(source='jsonl', field='turns')
  write(folder, 'dialogue', raw)
  with _language_model(folder), _classifier(folder, 'reviews'):
    yield {}


@contextlib.contextmanager
def _forecaster(folder):
  samples = folder / 'configs' / 'samples'
  samples.mkdir(parents=True)
  shutil.copy(tiny.ROOT / 'configs/samples/load.csv', samples)
  bundle = series.bundle(samples / 'load.csv')
  bundle_lib.write(bundle, folder / 'runs' / 'load')
  yield {}


@contextlib.contextmanager
def _server(folder):
  run = write(folder, 'demo', tiny.raw_config('gone'))
  made = service_lib.Service(
    model_lib.load(run, batch_invariant=True),
    service_lib.Options('demo'),
    served.ENGINE,
  )
  with made.running(0.0) as service, served.address(service) as url:
    yield {PORT: url.removeprefix('http://')}


@contextlib.contextmanager
def _dataset(folder):
  rows = classifiers.write_rows(folder / 'rows.jsonl', classifiers.texts())
  code, _, err = launchers.run(
    'prepare',
    '--name=rotten_tomatoes',
    *(f'--input={split}={rows}' for split in ('train', 'validation')),
    f'--data_dir={folder / "data"}',
  )
  assert code == 0, err
  yield {}


@contextlib.contextmanager
def _forecasts(folder):
  del folder
  rng = np.random.default_rng(0)
  y_NxL = rng.normal(size=(3, 24))
  yield {
    'y_NxL': y_NxL,
    'point_NxL': y_NxL + 0.1,
    'quantiles_NxLxQ': y_NxL[:, :, None] + np.linspace(-1, 1, 9)[None, None],
    'histories': [*rng.normal(size=(3, 96))],
  }


@contextlib.contextmanager
def _config(folder):
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  raw.train.steps = 2
  yield {'config': config_lib.parse(raw)}


@contextlib.contextmanager
def _raw_config(folder):
  del folder
  yield {'config': config_lib.default()}


@contextlib.contextmanager
def _nothing(folder):
  del folder
  yield {}


# What is in the folder of a page, and the names that its text introduces. A
# name with a colon is an address; the page's blocks run with another one.
GIVEN = {
  'README.md': _both,
  'docs/data.md': _dataset,
  'docs/forecast_scores.md': _forecasts,
  'docs/inference.md': _three_models,
  'docs/optimizers.md': _raw_config,
  'docs/serving.md': _server,
  'docs/start/classes.md': _classifier,
  'docs/start/serve.md': _server,
  'docs/start/series.md': _forecaster,
  'docs/start/text.md': _mine,
  'docs/training.md': _config,
}


def run(text, path='page', given=None):
  """Runs the blocks of a page. Returns their names."""
  names = dict(given or {})
  for block in guides.blocks(text, 'python'):
    if block.reason is None:
      source = block.text
      if PORT in names:
        source = source.replace(PORT, names[PORT])
      # An error names the line of the page.
      source = '\n' * (block.line - 1) + source
      exec(compile(source, path, 'exec'), names)
  return names


def check_layers(names):
  """Both classifiers have learned, and the shapes are those of the text."""
  assert names['value'] < 0.1 and names['value_nnx'] < 0.1
  assert names['last'].h_BxS.shape == (5, 64)
  assert names['y'].shape == (2, 6, 64)
  assert len(names['text']) == 8
  np.testing.assert_array_equal(names['prompt'].shape, (1, 4))


CHECKS = {'docs/layers.md': check_layers}


@pytest.fixture(scope='module', autouse=True)
def _programs():
  """The pages share the programs of equal models."""
  with compiled.shared():
    yield


@pytest.mark.slow
@pytest.mark.parametrize(
  'page', [x for x in guides.PAGES if guides.blocks(guides.read(x), 'python')]
)
def test_the_blocks_of_a_guide_run(page, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with (
    launchers.jax_config(),
    jax.numpy_rank_promotion('allow'),  # as it is for users
    GIVEN.get(page, _nothing)(tmp_path) as given,
  ):
    names = run(guides.read(page), str(guides.PAGES[page]), given)
  if page in CHECKS:
    CHECKS[page](names)


def test_a_block_that_fails_is_found_by_its_line():
  page = 'Text\n\n```python\nx = 1\n```\n\n{}```python\n1 / (x - 1)\n```\n'
  with pytest.raises(ZeroDivisionError) as caught:
    run(page.format(''))
  assert caught.traceback[-1].lineno + 1 == 8
  names = run(page.format('<!-- not run: needs a GPU -->\n'))
  assert names['x'] == 1


@pytest.mark.parametrize('page', guides.PAGES)
def test_what_is_not_run_has_a_reason(page):
  text = guides.read(page)
  blocks = guides.blocks(text, *LANGUAGES)
  reasons = [block.reason for block in blocks if block.reason is not None]
  assert len(reasons) == len(guides.NOT_RUN.findall(text)) and all(reasons)
  found = {match[2] for match in guides.FENCED.finditer(text)}
  assert found <= LANGUAGES  # a 'py' would be a block that nobody runs


def test_pages_are_given_what_they_use():
  assert GIVEN.keys() <= guides.PAGES.keys()


def test_the_lines_of_layers_are_as_many_as_the_table_says():
  blocks = guides.blocks(guides.read('docs/layers.md'), 'python')
  lines = [line for line in blocks[1].text.splitlines() if line.strip()]
  assert len(lines) == 23
  for block in blocks[-3:]:
    assert len(block.text.splitlines()) == 4
