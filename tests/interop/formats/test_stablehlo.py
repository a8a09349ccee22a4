"""The exported step, which runs without rnn_jax."""

import json
import os
import sys

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.inference import model as model_lib
from rnn_jax.interop import request
from rnn_jax.interop import standalone
from rnn_jax.interop import standalone_classify
from rnn_jax.interop import tensors
from rnn_jax.interop.formats import stablehlo
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import subprocesses
from tests.support import bundles
from tests.support import classifiers
from tests.support import tiny

PROMPTS = np.array([[20, 3, 1, 4, 1], [20, 9, 2, 6, 5]], np.int32)
# None in sys.modules makes an import fail, even of installed packages.
ISOLATED = """
import runpy, sys
sys.modules |= dict.fromkeys(('flax', 'rnn_jax', 'safetensors'))
sys.argv[:1] = []
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def decode(folder, *flags):
  """The tokens that decode.py writes."""
  lines = run_script(folder / 'decode.py', *flags)
  return [[*map(int, line.split(','))] for line in lines]


def run_script(path, *flags):
  """Runs a script in a process that can't import this package."""
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  ended = subprocesses.run(
    [sys.executable, '-I', '-c', ISOLATED, str(path), *flags],
    variables=environment | {'JAX_PLATFORMS': 'cpu'},
    timeout=300,
  )
  assert ended.code == 0, ended.err
  return ended.out


def assert_greedy(bundle, written):
  """Each token after the prompts is the most likely one of the whole row."""
  rows = np.concatenate([PROMPTS, written], 1)
  most_likely = bundles.logits(bundle, rows[:, :-1]).argmax(-1)
  np.testing.assert_array_equal(most_likely[:, PROMPTS.shape[1] - 1 :], written)


def test_a_process_without_the_package_writes_the_most_likely_tokens(tmp_path):
  raw = tiny.raw_config('text')
  raw.model.layers = 1
  bundle = bundles.make(raw)
  folder = tmp_path / 'step'
  stablehlo.write(bundle, request.Target(folder, 2, ('cpu', 'cuda')))
  rows = [','.join(map(str, row)) for row in PROMPTS]
  flags = (f'--tokens={rows[0]}', f'--tokens={rows[1]}', '--new_tokens=24')
  written = decode(folder, *flags)
  assert np.shape(written) == (2, 24)
  assert_greedy(bundle, written)
  interface = json.loads((folder / 'interface.json').read_text())
  assert interface['platforms'] == ['cpu', 'cuda']
  assert interface['inputs']['token_B'] == 'int32[2]'
  assert interface['outputs']['logits_BxV'] == 'float32[2, 21]'
  assert (interface['vocabulary'], interface['boundary']) == (21, 20)
  card = (folder / 'README.md').read_text()
  assert '--format=stablehlo --batch_size=2 --platforms=cpu,cuda' in card
  params = interface['inputs']['params']
  stored = tensors.read(folder / 'parameters.safetensors')
  assert params == {k: f'{x.dtype}{[*x.shape]}' for k, x in stored.items()}
  assert [path.name for path in tmp_path.iterdir()] == ['step']


def test_attention_with_positions(tmp_path):
  bundle = bundles.make(bundles.raw_attention())
  stablehlo.write(bundle, request.Target(tmp_path / 'step', 2))
  written = standalone.decode(tmp_path / 'step', PROMPTS, 10)
  assert_greedy(bundle, written)
  program = jax.export.deserialize(
    (tmp_path / 'step' / 'step.stablehlo').read_bytes()
  )
  assert program.platforms == ('cpu',)


def test_a_process_without_the_package_classifies_texts(tmp_path):
  run = classifiers.write_texts(tmp_path / 'run', pooling='max')
  bundle, folder = bundle_lib.read(run, 'best'), tmp_path / 'classify'
  stablehlo.write(bundle, request.Target(folder, 2))
  texts = ['a gate', 'the state reads ' * 20, '']  # the second one is cut
  flags = [f'--text={text}' for text in texts]
  rows = [*map(json.loads, run_script(folder / 'classify.py', *flags))]
  predicted = model_lib.Model(bundle).predict(texts)
  for row, wanted in zip(rows, predicted, strict=True):
    assert row == pytest.approx(wanted.probabilities, rel=1e-4, abs=1e-6)
  opened = standalone_classify.Classifier(folder)
  ids = opened.encode(texts)
  assert ids == [bundle.tokenizer.encode(text).tolist() for text in texts]
  made = [[*row.values()] for row in rows]
  np.testing.assert_allclose(opened.texts(ids), made, rtol=1e-6)
  interface = json.loads((folder / 'interface.json').read_text())
  assert interface['classes'] == [*classifiers.CLASSES]
  assert interface['longest'] == 128 - 2
  assert interface['inputs']['tokens_BxL'] == 'int32[2, 129]'
  assert interface['outputs'] == {'probabilities_BxC': 'float32[2, 3]'}


def test_a_classifier_of_images_is_exported(tmp_path):
  bundle, folder = classifiers.images_bundle(), tmp_path / 'classify'
  stablehlo.write(bundle, request.Target(folder, 2))
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 256, (3, 4, 4, 1)).astype(np.uint8)
  made = standalone_classify.Classifier(folder).images(pixels)
  wanted = model_lib.Model(bundle).predict(pixels)
  for row, prediction in zip(made, wanted, strict=True):
    values = [*prediction.probabilities.values()]
    np.testing.assert_allclose(row, values, rtol=1e-4, atol=1e-6)


def test_exported_files_have_the_mode_of_their_neighbours(tmp_path):
  neighbour, path = tmp_path / 'neighbour', tmp_path / 'x.safetensors'
  before = os.umask(0o027)
  try:
    neighbour.write_text('')
    tensors.write(path, {'x': np.zeros(2, np.float32)})
  finally:
    os.umask(before)
  assert path.stat().st_mode == neighbour.stat().st_mode
  assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
  ('values', 'message'),
  (
    ({'batch_size': 0}, '--batch_size=0: give 1 or more'),
    ({'platforms': ('cpu', 'gpu')}, '--platforms=cpu,gpu: choose from'),
  ),
)
def test_bad_choices_are_refused(tmp_path, values, message):
  bundle = bundles.make(tiny.raw_config('text'))
  with pytest.raises(errors.InputError, match=message):
    stablehlo.write(bundle, request.Target(tmp_path / 'step', **values))
  assert not [*tmp_path.iterdir()]
