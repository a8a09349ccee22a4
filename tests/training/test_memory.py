"""The batch that a memory holds: as large as it can be, the same on resume."""

import json
import re

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import tokenizer
from rnn_jax.training import loop
from rnn_jax.training import memory
from rnn_jax.training import step
from tests import tiny

GIB = 0.004


def configure(gib=GIB):
  raw = tiny.raw_config('unused')
  raw.data.memory_gib = gib
  return config_lib.parse(raw)


def test_the_budget_is_used_and_kept_to():
  config = configure()
  rows = memory.rows_for_budget(config, tokenizer.Bytes(), 4)
  steps = step.from_config(config, tokenizer.Bytes())
  assert rows % 4 == 0
  assert steps.train_bytes(rows, 32) <= GIB * 2**30
  assert steps.train_bytes(rows + max(rows // 8, 4), 32) > GIB * 2**30


def test_the_batch_of_a_run_is_kept_in_its_folder(tmp_path, monkeypatch):
  config = configure()
  monkeypatch.setattr(memory, 'rows_for_budget', lambda *_: 6)
  found = memory.resolve(config, tokenizer.Bytes(), tmp_path, 2)
  assert found.data.tokens_per_batch == 6 * 32
  kept = json.loads((tmp_path / memory.NAME).read_text())
  assert kept == {'tokens_per_batch': 6 * 32}
  monkeypatch.setattr(memory, 'rows_for_budget', lambda *_: 8)
  assert memory.resolve(config, tokenizer.Bytes(), tmp_path, 2) == found


def test_a_run_has_batches_of_its_budget(tmp_path, monkeypatch, capsys):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.memory_gib = GIB
  raw.data.boundaries = (16, 32)
  monkeypatch.setattr(memory, 'rows_for_budget', lambda *_: 6)
  run = loop.Run(config_lib.parse(raw), str(tmp_path / 'run'))
  run._restore()
  shape = next(run._batches).tokens_BxL.shape
  run.close()
  assert shape in ((6, 32), (12, 16))
  out = capsys.readouterr().out
  assert 'data.memory_gib=0.004 holds 192 tokens a batch' in out
  assert '2 shapes: 6x32 ... 12x16' in out


def test_without_a_budget_nothing_changes(tmp_path):
  config = configure(0.0)
  assert memory.resolve(config, tokenizer.Bytes(), tmp_path, 1) is config
  assert not any(tmp_path.iterdir())


def test_a_budget_for_no_row_is_refused_with_what_is_needed():
  with pytest.raises(errors.InputError) as raised:
    memory.rows_for_budget(configure(1e-5), tokenizer.Bytes(), 2)
  message = str(raised.value)
  assert message.startswith('data.memory_gib=1e-05: 2 row(s) of data.length=32')
  needed = float(re.search(r'need about ([\d.e-]+)', message)[1])
  steps = step.from_config(configure(), tokenizer.Bytes())
  exact = steps.train_bytes(2, 32)
  assert needed * 2**30 == pytest.approx(exact, rel=0.1)
  params = steps.parameters_like()
  assert exact > 3 * sum(4 * x.size for x in jax.tree.leaves(params))
