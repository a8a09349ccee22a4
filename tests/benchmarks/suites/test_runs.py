"""Training runs: every row is shown, with its device."""

import json

from benchmarks.suites import runs
from rnn_jax import config as config_lib
from rnn_jax.training import loop
from tests.support import tiny


def test_a_run_is_recorded_without_its_folders(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.train.update(steps=4, log_every=4)  # one row of metrics
  raw.model.layers = 1
  raw.evaluate.every = 0
  raw.data.test_path = tiny.write_text(tmp_path / 'other', seed=1)
  workdir = tmp_path / 'run'
  loop.train(config_lib.parse(raw), str(workdir))
  row = runs.values_of(workdir)
  assert (row['name'], row['source'], row['steps']) == ('run', 'text', 4)
  assert row['held_out']['split'] == 'test'
  assert 0 < row['held_out']['bits_per_byte'] < 10
  assert [step for step, _ in row['validation_curve']] == [4]
  assert [step for step, _ in row['accuracy_curve']] == [4]
  assert str(tmp_path) not in json.dumps(row)
