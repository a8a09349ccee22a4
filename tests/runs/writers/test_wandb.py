"""Weights & Biases without a login: all that a run logs is in its folder."""

import importlib.util
import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.runs import metrics
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.writers import wandb as writer_lib

BLOCK = 2**15  # bytes


def history(folder):
  """The rows of all offline runs: a log of protobuf records, in blocks."""
  from wandb.proto import wandb_internal_pb2

  rows = []
  for path in sorted(folder.glob('wandb/offline-run-*/run-*.wandb')):
    data, at, whole = path.read_bytes(), 7, b''
    while at + 7 <= len(data):
      if BLOCK - at % BLOCK < 7:
        at += BLOCK - at % BLOCK
        continue
      size, kind = int.from_bytes(data[at + 4 : at + 6], 'little'), data[at + 6]
      whole += data[at + 7 : at + 7 + size]
      at += 7 + size
      if kind in (1, 4):  # a whole record, or the last part of one
        record = wandb_internal_pb2.Record.FromString(whole)
        whole = b''
        items = record.history.item
        row = {'/'.join(x.nested_key) or x.key: x.value_json for x in items}
        rows += [{k: json.loads(v) for k, v in row.items()}] if row else []
  return rows


def begin(folder):
  config = config_lib.to_dict(config_lib.parse(config_lib.default()))
  workdir_lib.open_for_training(folder, config).close()


@pytest.mark.peers
def test_rows_of_a_resumed_run_are_logged_under_one_id(tmp_path, monkeypatch):
  pytest.importorskip('wandb', reason="needs pip install 'rnn_jax[wandb]'")
  for name in ('WANDB_MODE', 'WANDB_API_KEY', 'WANDB_PROJECT', 'WANDB_NAME'):
    monkeypatch.delenv(name, raising=False)
  for name in ('HOME', 'WANDB_CONFIG_DIR', 'WANDB_CACHE_DIR'):
    monkeypatch.setenv(name, str(tmp_path / 'home'))
  monkeypatch.setenv('NETRC', str(tmp_path / 'home' / 'netrc'))
  folder = tmp_path / 'run'
  begin(folder)
  for step in (3, 4):
    writer = metrics.Writer(folder, step - 1, ('wandb',))
    writer.write(step, 'validation', {'loss': 1.5 * step, 'accuracy': None})
    writer.close()
  rows = history(folder)
  assert [(r['step'], r['validation/loss']) for r in rows] == [
    (3, 4.5),
    (4, 6.0),
  ]
  runs = list(folder.glob('wandb/offline-run-*'))
  assert {x.name.rpartition('-')[2] for x in runs} == {
    (folder / writer_lib.ID).read_text()
  }
  assert [row['step'] for row in metrics.read(folder)] == [3, 4]


def test_without_the_package_a_run_does_not_start(monkeypatch):
  found = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name, *more: None if name == 'wandb' else found(name, *more),
  )
  with pytest.raises(errors.InputError, match=r"pip install 'rnn_jax\[wandb\]"):
    metrics.check(['jsonl', 'wandb'])


@pytest.mark.parametrize('text', ('', '../../x', 'a' * 1000))
def test_a_damaged_id_is_replaced(text, tmp_path):
  path = tmp_path / writer_lib.ID
  path.parent.mkdir()
  path.write_text(text)
  made = writer_lib._id(tmp_path)
  assert len(made) == 32 and path.read_text() == made
  assert writer_lib._id(tmp_path) == made


def test_without_a_login_a_run_is_offline(monkeypatch):
  class Package:
    @staticmethod
    def login(prompt):
      assert prompt is False
      return False

  monkeypatch.delenv(writer_lib.MODE, raising=False)
  assert writer_lib._mode(Package) == 'offline'
  monkeypatch.setenv(writer_lib.MODE, 'disabled')
  assert writer_lib._mode(Package) is None
