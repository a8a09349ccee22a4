"""What a language model's evaluation writes."""

import json

from rnn_jax import config as config_lib
from rnn_jax.evaluation import run as run_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from rnn_jax.training import progress
from tests import tiny


def test_scores_of_a_language_model_have_intervals_over_batches(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.train.steps = 2
  workdir = tmp_path / 'run'
  loop.train(config_lib.parse(raw), str(workdir))
  run = evaluate.Run.open(workdir)
  row = run_lib.evaluate_run(run, workdir, 'train')
  assert row['intervals'].keys() >= {'loss', 'perplexity', 'accuracy'}
  for name, (low, high) in row['intervals'].items():
    assert low <= row[name] <= high, name
  assert row['intervals']['loss'][0] < row['intervals']['loss'][1]
  written = workdir / 'evaluation' / 'train' / 'scores.json'
  assert json.loads(written.read_text()) == row
  told = progress.evaluation_table(row) + run_lib.table(row)
  assert told.count('perplexity') == 1 and 'bits per byte' in told
