"""Rows on disk, and which of them a resumed run keeps."""

import errno
import json
import math

import pytest
from tensorboardX.proto import event_pb2

from rnn_jax import errors
from rnn_jax.config import parts
from rnn_jax.runs import metrics
from rnn_jax.runs.writers import jsonl
from rnn_jax.system import files


def test_rows_after_the_resumed_step_are_dropped(tmp_path):
  writer = metrics.Writer(tmp_path, 0)
  for step in (10, 20, 30):
    writer.write(step, 'train', {'loss': 1.0 / step})
  writer.close()
  with (tmp_path / jsonl.NAME).open('a') as file:
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


def events(folder):
  """[(name, value, step)] of TensorBoard's files: length, CRC, event, CRC."""
  found = []
  for path in sorted(folder.glob('events.out.tfevents.*')):
    data = path.read_bytes()
    while data:
      size = int.from_bytes(data[:8], 'little')
      event = event_pb2.Event.FromString(data[12 : 12 + size])
      data = data[16 + size :]
      values = event.summary.value
      found += [(x.tag, x.simple_value, event.step) for x in values]
  return found


def test_tensorboard_gets_every_number(tmp_path):
  writer = metrics.Writer(tmp_path, 0)
  writer.write(3, 'validation', {'loss': 2.0, 'accuracy': 0.5, 'x': None})
  # They are on disk while the run goes on.
  assert events(tmp_path / 'tensorboard') == [
    ('validation/loss', 2.0, 3),
    ('validation/accuracy', 0.5, 3),
  ]
  writer.close()


def test_what_json_lacks_is_null_on_disk_and_nan_when_read(tmp_path):
  writer = metrics.Writer(tmp_path, 0)
  writer.write(1, 'train', {'loss': math.nan, 'perplexity': math.inf})
  writer.close()
  line = (tmp_path / jsonl.NAME).read_text()
  assert json.loads(line, parse_constant=pytest.fail)['loss'] is None
  (row,) = metrics.read(tmp_path)
  assert math.isnan(row['loss']) and math.isnan(row['perplexity'])


@pytest.mark.parametrize(
  'line', ('{"step": 2, "spl', '[1, 2]', '{"split": "train"}', '[' * 10**5)
)
def test_a_damaged_line_costs_no_other_row(line, tmp_path, caplog):
  path = tmp_path / jsonl.NAME
  good = [f'{{"step": {n}, "split": "train"}}' for n in (1, 3, 4)]
  path.write_text('\n'.join([good[0], line, *good[1:]]) + '\n')
  assert [row['step'] for row in metrics.read(tmp_path)] == [1, 3, 4]
  assert 'line 2 is damaged' in caplog.text
  metrics.Writer(tmp_path, 3).close()
  assert path.read_text().split() == [w for g in good[:2] for w in g.split()]
  assert (tmp_path / jsonl.DAMAGED).read_text() == f'{line}\n'


class Full:
  """A file on a disk that is full for a while, and then takes 7 bytes."""

  def __init__(self, file):
    self._file = file
    self.full = True

  def write(self, data):
    if self.full:
      raise OSError(errno.ENOSPC, 'No space left on device')
    return self._file.write(data[:7])

  def close(self):
    self._file.close()


def test_a_full_disk_costs_a_warning_and_no_row(tmp_path, caplog, monkeypatch):
  monkeypatch.setattr(files, '_missed', set())
  writer = jsonl.Writer(tmp_path, 0)
  writer._file = disk = Full(writer._file)
  for step in (1, 2):
    writer.write(step, 'train', {'loss': 1.0})
  assert caplog.text.count('cannot be written (No space left') == 1
  disk.full = False
  writer.write(3, 'train', {'loss': 1.0})
  writer.close()
  assert [row['step'] for row in metrics.read(tmp_path)] == [1, 2, 3]


def test_tensorboard_on_a_full_disk_costs_a_warning(
  tmp_path, caplog, monkeypatch
):
  monkeypatch.setattr(files, '_missed', set())
  (tmp_path / 'tensorboard').touch()  # no folder can be made
  writer = metrics.Writer(tmp_path, 0)
  for step in range(1, 30):  # more than a queue would hold
    writer.write(step, 'train', {'loss': 1.0})
  writer.close()
  assert len(metrics.read(tmp_path)) == 29
  assert caplog.text.count('tensorboard cannot be written') == 1


class Broken:
  """A writer of another package that has lost its server."""

  def __init__(self):
    self.calls = 0

  def make(self, workdir, step):
    assert (workdir.name, step) == ('run', 5)
    return self

  def write(self, step, split, values):
    self.calls += 1
    raise ConnectionError('no server')

  def close(self):
    self.calls += 1


def test_a_writer_that_fails_is_a_warning_and_costs_no_row(
  tmp_path, caplog, monkeypatch
):
  broken, folder = Broken(), tmp_path / 'run'
  folder.mkdir()
  monkeypatch.setattr(metrics.config_lib, 'load', lambda *_: broken)
  writer = metrics.Writer(folder, 5, ('mine.broken', 'jsonl', 'mine.broken'))
  for step in (6, 7):
    writer.write(step, 'train', {'loss': 1.0})
  writer.close()
  assert [row['step'] for row in metrics.read(folder)] == [6, 7]
  assert broken.calls == 1
  assert caplog.text.count("'mine.broken' failed (ConnectionError: no s") == 1
  assert not (folder / 'tensorboard').exists()


def test_an_unknown_writer_is_refused_before_a_run_starts():
  with pytest.raises(errors.InputError, match=r"'board': choose one of \['js"):
    metrics.check(('board',))


def test_a_stranger_s_writer_is_not_imported():
  raw = {'metrics': {'writers': ['jsonl', 'theirs.payload']}}
  with pytest.raises(errors.InputError, match="writers='theirs.payload' names"):
    parts.check_known(raw, 'config.json')


def test_a_run_without_metrics_has_no_rows(tmp_path):
  assert metrics.read(tmp_path) == []


def test_peak_memory_is_that_of_a_real_process():
  assert 10e6 < metrics.peak_memory_bytes() < 1e12
