"""Rows on disk, and which of them a resumed run keeps."""

import tensorboardX

from rnn_jax.runs import metrics


def test_rows_after_the_resumed_step_are_dropped(tmp_path):
  writer = metrics.Writer(tmp_path, 0)
  for step in (10, 20, 30):
    writer.write(step, 'train', {'loss': 1.0 / step})
  writer.close()
  with (tmp_path / metrics.NAME).open('a') as file:
    file.write('{"step": 40, "spl')  # a crash within a line
  writer = metrics.Writer(tmp_path, 20)
  writer.write(30, 'train', {'loss': 7.0})
  writer.close()
  rows = metrics.read(tmp_path)
  assert [(r['step'], r['loss']) for r in rows] == [
    (10, 0.1),
    (20, 0.05),
    (30, 7.0),
  ]


def test_tensorboard_gets_every_value(tmp_path, monkeypatch):
  seen = []
  monkeypatch.setattr(
    tensorboardX.SummaryWriter,
    'add_scalar',
    lambda self, name, value, step: seen.append((name, value, step)),
  )
  writer = metrics.Writer(tmp_path, 0)
  writer.write(3, 'validation', {'loss': 2.0, 'accuracy': 0.5})
  writer.close()
  assert seen == [('validation/loss', 2.0, 3), ('validation/accuracy', 0.5, 3)]


def test_a_run_without_metrics_has_no_rows(tmp_path):
  assert metrics.read(tmp_path) == []


def test_peak_memory_is_that_of_a_real_process():
  assert 10e6 < metrics.peak_memory_bytes() < 1e12
