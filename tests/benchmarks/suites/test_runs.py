"""Training runs: every row is shown, with its device."""

import json

from benchmarks.suites import runs
from rnn_jax import config as config_lib
from rnn_jax.training import loop
from tests.benchmarks import made
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


TEXT_SCORES = 'loss', 'bits_per_byte', 'gzip', 'xz'
CLASS_SCORES = 'loss', 'accuracy'


def test_every_run_is_shown_with_its_device(tmp_path):
  def measured(name, device, layout='stream', scores=TEXT_SCORES):
    return made.WHERE | dict(
      name=name,
      device=device,
      config={'data': {'layout': layout}},
      held_out={'split': 'test', **dict.fromkeys(scores, 1.5)},
      **dict.fromkeys(('parameters', 'steps', 'tokens', 'seconds'), 60),
      tokens_per_second_median=2.0,
      peak_memory_bytes=2**20,
    )

  rows = [
    measured('a', 'an old processor'),
    measured('a', 'an old processor'),
    measured('a', 'a processor'),
    measured('b', 'an old processor', 'images', CLASS_SCORES)
    | {'accuracy_curve': [(1, 0.25), (2, 0.5)]},
    measured('c', 'a processor', scores=CLASS_SCORES),
  ]
  text = made.section(tmp_path, 'runs', rows)
  lines = [line.split(' | ') for line in text.splitlines()]
  assert [(x[0], x[-2]) for x in lines if x[0][2:] in ('a', 'b', 'c')] == [
    ('| a', 'an old processor'),
    ('| a', 'an old processor'),
    ('| a', 'a processor'),
    ('| c', 'a processor'),
    ('| b', 'an old processor'),
  ]
  assert '1.5000 | 1.5000 | 1.500, 1.500 | 1 MiB' in text
  assert text.count('](plots/') == 1
  assert '60 | 1.0 min | 2 | test | 1.5000 | 1.5000 | 1 MiB' in text
  assert text.count('| accuracy | nats per text |') == 1
