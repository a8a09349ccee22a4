"""The files that the evaluation of a language model writes."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import plots
from rnn_jax.evaluation import run as run_lib
from rnn_jax.runs import progress
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import tiny


def test_scores_of_a_language_model_have_intervals_over_batches(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.train.steps = 2
  raw.data.boundaries = (32,)
  raw.model.layers = 1
  raw.evaluate.every = 0
  workdir = tmp_path / 'run'
  loop.train(config_lib.parse(raw), str(workdir))
  assert (workdir / 'loss.png').stat().st_size > 5000
  run = evaluate.Run.open(workdir)
  row = run_lib.evaluate_run(run, workdir, 'train')
  assert row['intervals'].keys() >= {'loss', 'perplexity', 'accuracy'}
  for name, (low, high) in row['intervals'].items():
    assert low <= row[name] <= high, name
  assert row['intervals']['loss'][0] < row['intervals']['loss'][1]
  written = workdir / 'evaluation' / 'train' / 'scores.json'
  assert json.loads(written.read_text()) == row
  text = progress.evaluation_table(row) + run_lib.table(row)
  assert text.count('perplexity') == 1 and 'bits per byte' in text
  assert (written.parent / 'scores.png').stat().st_size > 5000
  with pytest.raises(errors.InputError, match="'language_modeling': leave"):
    run_lib.evaluate_run(run, workdir, 'train', bertscore='m')


def drawn(row, tmp_path, monkeypatch):
  """Draws a row. Returns {tick: height} of each panel."""
  figures = []
  monkeypatch.setattr(plots, 'save', lambda figure, _: figures.append(figure))
  run_lib.draw_scores({'split': 'test', 'step': 1, **row}, tmp_path / 'x.png')
  return [
    dict(
      zip(
        (tick.get_text() for tick in axes.get_xticklabels()),
        (bar.get_height() for bar in axes.containers[0]),
        strict=True,
      )
    )
    for axes in figures[0].axes
  ]


def test_a_language_model_is_drawn_beside_gzip_and_xz(tmp_path, monkeypatch):
  row = {'accuracy': 0.5, 'bits_per_byte': 2.0, 'gzip': 3.0, 'xz': 2.5}
  edges = {'accuracy': [0.4, 0.6], 'loss': [1, 2], 'bits_per_byte': [1.9, 2.2]}
  shares, bits = drawn(row | {'intervals': edges}, tmp_path, monkeypatch)
  assert shares == {'accuracy': 0.5}
  assert bits == {'this model': 2.0, 'gzip -9': 3.0, 'xz -9e': 2.5}


def test_a_lossy_tokenizer_and_a_single_batch_have_only_shares(
  tmp_path, monkeypatch
):
  row = {'accuracy': 0.5, 'loss': 2.0, 'intervals': {}}
  assert drawn(row, tmp_path, monkeypatch) == [{'accuracy': 0.5}]
