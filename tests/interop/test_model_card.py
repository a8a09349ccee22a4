"""Model cards: what is in them, and what is left out."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.interop import model_card
from rnn_jax.interop import request
from tests.support import bundles

FORM = model_card.Form('safetensors', 'bfloat16', 'mamba2')


@pytest.fixture(name='run')
def _run(tmp_path):
  run = tmp_path / 'demo'
  run.mkdir()
  return run


def card(run, bundle=None, form=FORM, **options):
  """The text of a card."""
  raw = config_lib.default()
  raw.model.update(width=8, layers=1, mlp_width=8)
  raw.data.source, raw.data.path = 'text', '/home/me/secret/*.txt'
  target = request.Target(run / 'out', workdir=run, **options)
  (run / 'out').mkdir(exist_ok=True)
  model_card.write(run / 'out', bundle or bundles.make(raw), target, form)
  return (run / 'out' / 'README.md').read_text()


def test_a_card_without_a_run_has_no_empty_sections(run):
  text = card(run)
  assert text.startswith('---\nlicense: other\n')
  assert '## Data' not in text and '## Results' not in text
  assert '| files | safetensors, weights in bfloat16 |' in text
  assert 'secret' not in text and str(run) not in text
  block = text.split('```json\n')[1].split('```')[0]
  described = json.loads(block)
  assert described['model']['width'] == 8
  assert 'path' not in described['data']
  assert 'launch.train' not in text  # nothing was trained


def test_the_command_is_that_of_the_files(run):
  form = model_card.Form('StableHLO', 'float32', 'gla')
  options = {'batch_size': 4, 'platforms': ('cpu', 'cuda'), 'license': 'mit'}
  text = card(run, form=form, **options)
  written = '--batch_size=4 --platforms=cpu,cuda --license=mit --output=out'
  assert f'--workdir=runs/demo --format=stablehlo {written}\n' in text
  assert 'tags: ["rnn_jax", "gla", "stablehlo"]' in text


def test_programs_are_named_by_their_cells(run):
  raw = config_lib.default(('gla', 'attention'))
  raw.model.update(width=8, layers=2, mlp_width=8)
  form = model_card.of_programs(bundles.make(raw), 'ONNX', 'int8')
  assert form == ('ONNX', 'int8', 'gla-attention')


def test_scores_are_those_of_the_step_and_of_every_split(run):
  for split, step in (('test', 0), ('validation', 0), ('train', 7)):
    folder = run / 'evaluation' / split
    folder.mkdir(parents=True)
    scores = {'split': split, 'step': step, 'loss': 1.23456, 'tokens': 12345}
    scores['intervals'] = {'loss': [1.2, 1.3]}
    (folder / 'scores.json').write_text(json.dumps(scores))
  text = card(run)
  for split in ('test', 'validation'):
    assert f'| {split} | loss | 1.235 | 1.2 to 1.3 |' in text
    assert f'| {split} | tokens | 12,345 |  |' in text
  assert '| train |' not in text


def test_without_an_evaluation_the_last_row_of_the_run_is_there(run):
  rows = (
    {'step': 0, 'split': 'validation', 'loss': 2.0},
    {'step': 0, 'split': 'train', 'loss': 3.0},
  )
  (run / 'metrics.jsonl').write_text(
    ''.join(json.dumps(row) + '\n' for row in rows)
  )
  text = card(run)
  assert '| validation | loss | 2 |  |' in text and '| train |' not in text


def test_a_damaged_file_of_the_run_is_one_line(run):
  (run / 'data.json').write_text('{')
  with pytest.raises(errors.InputError, match='data.json is damaged'):
    card(run)


@pytest.mark.parametrize('name', ('', 'a b', '-', 'a' * 99, 'mit\nx: y', '[]'))
def test_a_license_is_an_identifier(name):
  with pytest.raises(errors.InputError, match='--license='):
    model_card.check_license(name)
  model_card.check_license('cc-by-sa-4.0')
