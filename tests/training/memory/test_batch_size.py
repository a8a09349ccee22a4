"""The batch that a memory holds: as large as it can be, the same on resume."""

import re

import hypothesis
import jax
import pytest
from hypothesis import strategies as st

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.system import target
from rnn_jax.training import assembly
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import resolve
from rnn_jax.training import restore
from rnn_jax.training.memory import batch_size
from tests.support import shared
from tests.support import tiny

GIB = 0.004
PROGRAMS = programs_lib.Programs


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def configure(gib=GIB, optimizer='sgd'):
  raw = tiny.raw_config('unused')
  raw.model.layers = 1
  raw.optimizer.name = optimizer
  raw.data.memory_gib = gib
  return config_lib.parse(raw)


def test_the_budget_is_used_and_kept_to():
  config = configure()
  rows = batch_size.rows_for_budget(config, tokenizer.Bytes(), 4)
  programs = programs_lib.from_config(config, tokenizer.Bytes())
  assert rows % 4 == 0
  assert target.memory(programs.compile_train(rows, 32)).total <= GIB * 2**30
  assert target.memory(programs.compile_train(rows + 4, 32)).total > GIB * 2**30


def test_a_run_has_batches_of_its_budget(tmp_path, monkeypatch, capsys):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.memory_gib = GIB
  raw.data.boundaries = (16, 32)
  monkeypatch.setattr(batch_size, 'rows_for_budget', lambda *_: 6)
  config = config_lib.parse(raw)
  trainer = assembly.make(resolve.resolve(config), str(tmp_path / 'run'))
  restore.restore(trainer)
  shape = next(trainer.batches).tokens_BxL.shape
  trainer.close()
  assert shape in ((6, 32), (12, 16))
  out = capsys.readouterr().out
  assert (
    'resolved data.tokens_per_batch=192 (from data.memory_gib=0.004)'
    in resolve.describe(trainer.config)
  )
  assert '2 shapes: 6x32 ... 12x16' in out


def test_a_budget_for_no_row_is_refused_with_what_is_needed():
  programs = programs_lib.from_config(configure(), tokenizer.Bytes())
  state = sum(batch_size.state_bytes(programs))
  with pytest.raises(errors.InputError) as raised:
    batch_size.rows_for_budget(configure(state / 2**30), tokenizer.Bytes(), 2)
  message = str(raised.value)
  assert f'parameters and optimizer state need {state:,} bytes' in message
  assert 'and 2 row(s) of data.length=32' in message
  needed = float(re.search(r'tokens ([\d.e-]+) GiB', message)[1])
  assert needed * 2**30 == pytest.approx(
    target.memory(programs.compile_train(2, 32)).total, rel=1e-2
  )


def test_a_budget_smaller_than_the_parameters_compiles_nothing(monkeypatch):
  monkeypatch.setattr(PROGRAMS, 'compile_train', None)
  config = configure(1e-5, 'adamw')
  programs = programs_lib.from_config(config, tokenizer.Bytes())
  params, optimizer = batch_size.state_bytes(programs)
  leaves = jax.tree.leaves(programs.states.like().params)
  assert params == sum(4 * x.size for x in leaves)
  assert 2 * params <= optimizer < 2.1 * params  # Adam's two moments
  with pytest.raises(errors.InputError) as raised:
    batch_size.rows_for_budget(config, tokenizer.Bytes(), 1)
  assert str(raised.value) == (
    'data.memory_gib=1e-05: parameters and optimizer state need '
    f'{params + optimizer:,} bytes ({(params + optimizer) / 2**30:.3g} GiB): '
    'give more, or a smaller model'
  )


@hypothesis.given(
  st.integers(0, 10**6),
  st.integers(1, 5000),
  st.integers(0, 300),
  st.integers(0, 10**7),
)
def test_the_search_is_exact_where_the_line_is_wrong(fixed, each, bend, budget):
  def size(n):
    return fixed + each * n + bend * (n // 7) + (n * n * bend) // 1000

  rows = batch_size.search(size, budget)
  assert rows == 0 or size(rows) <= budget
  assert size(rows + 1) > budget


def test_the_search_of_a_line_compiles_little():
  asked = []

  def size(n):
    asked.append(n)
    return 1000 + 30 * n

  assert batch_size.search(size, 100_000) == 3300
  assert asked == [2, 6, 600, 3300, 3301]


def test_the_search_gets_past_a_batch_that_needs_no_more():
  sizes = {n: 100 for n in range(1, 50)}
  assert batch_size.search(lambda n: sizes.get(n, 100 + n), 400) == 300
