"""The largest batch, with made-up compilations and trials."""

import types

import pytest

from rnn_jax import config as config_lib
from rnn_jax.profiling import batch_size
from rnn_jax.profiling import trial
from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import target
from rnn_jax.training.memory import batch_size as batch_size_lib
from tests.support import tiny

# 40 rows by the account below.
BUDGET = batch_size_lib.Budget(10_000, 'a budget')


@pytest.fixture(name='workload')
def _workload(monkeypatch):
  def account(_, rows):
    return target.Memory(1000, 200 * rows, 25 * rows)

  monkeypatch.setattr(batch_size_lib.Search, '_memory', account)
  monkeypatch.setattr(batch_size_lib, 'state_bytes', lambda *_: (300, 600))
  config = config_lib.parse(tiny.raw_config('unused'))
  return workload_lib.Workload(config, None, types.SimpleNamespace(), 4)


def let_run(monkeypatch, most):
  """Trials of up to `most` rows succeed. Returns those that were made."""
  made = []

  def run(config, rows, budget):
    del config
    assert budget == BUDGET
    made.append(rows)
    if rows > most:
      return trial.Trial(rows, False, None, 'killed by SIGABRT')
    return trial.Trial(rows, True, 300 * rows, '')

  monkeypatch.setattr(trial, 'run', run)
  return made


def test_without_trials_the_account_decides(workload):
  result = batch_size.find(workload, BUDGET, confirm=False)
  assert result.rows == 40
  assert [*result.memory] == [40, 44]
  assert batch_size.table(result).splitlines() == [
    '| rows | arguments | temporaries | outputs |  total | of budget |',
    '| ---: | --------: | ----------: | ------: | -----: | --------: |',
    '|   40 |    0.0000 |      0.0000 |  0.0000 | 0.0000 |    100.0% |',
    '|   44 |    0.0000 |      0.0000 |  0.0000 | 0.0000 |    109.0% |',
  ]


def test_the_next_larger_are_tried_until_one_fails(workload, monkeypatch):
  made = let_run(monkeypatch, 43)
  result = batch_size.find(workload, BUDGET, confirm=True)
  assert (result.rows, made) == (40, [40, 44])
  first, second = batch_size.table(result).splitlines()[2:]
  assert first.endswith('| yes       | 0.0000            |')
  assert second.endswith('| no        | killed by SIGABRT |')


def test_more_than_the_account_allows_is_tried_and_not_taken(
  workload, monkeypatch
):
  made = let_run(monkeypatch, 1000)
  assert batch_size.find(workload, BUDGET, confirm=True).rows == 40
  assert made == [40, 44]  # 44 is a tenth more
  monkeypatch.setattr(batch_size_lib, 'search', lambda *_: 25)
  assert batch_size.find(workload, BUDGET, confirm=True).rows == 100
  assert made[2:] == [100, 104, 112]


def test_a_wrong_account_is_corrected(workload, monkeypatch):
  made = let_run(monkeypatch, 33)
  result = batch_size.find(workload, BUDGET, confirm=True)
  assert (result.rows, made) == (32, [40, 36, 32])
  assert [*result.memory] == [32, 36, 40, 44]
  assert batch_size.table(result).endswith('| -         | -                 |')


def test_if_nothing_runs_the_answer_is_0(workload, monkeypatch):
  made = let_run(monkeypatch, 0)
  assert batch_size.find(workload, BUDGET, confirm=True).rows == 0
  assert made[-1] == 4


@pytest.mark.parametrize(
  ('changes', 'flags'),
  (
    ({}, ''),
    ({'tokens_per_batch': 320}, ' --config.data.tokens_per_batch=0'),
    ({'memory_gib': 2.0}, ' --config.data.memory_gib=0'),
  ),
)
def test_what_to_set_unsets_what_would_override_it(changes, flags):
  raw = tiny.raw_config('unused')
  raw.data.update(**changes)
  workload = workload_lib.Workload(config_lib.parse(raw), None, None, 1)
  result = batch_size.Result(7, BUDGET, {}, [])
  text = batch_size.conclusion(result, workload)
  assert text == '--config.data.batch_size=7' + flags
