"""The cheapest remat that fits, as XLA reports."""

import functools

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.system import target
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import resolve
from rnn_jax.training.memory import remat as remat_budget
from tests.support import shared
from tests.support import tiny

SHAPES = (8, 16), (8, 32)


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def configure(gib=1.0, every='auto', **remat):
  raw = tiny.raw_config('unused')
  raw.recurrence.impl = 'scan'
  raw.optimizer.name = 'sgd'
  raw.remat.update(every=every, memory_gib=gib, **remat)
  return config_lib.parse(raw)


@functools.cache
def needed(config):
  programs = programs_lib.from_config(config, tokenizer.Bytes())
  return target.memory(programs.compile_train(8, 32)).total


def test_the_first_plan_that_fits_is_chosen():
  plain = needed(configure(0.0, 0))
  root = needed(configure(0.0, 'sqrt'))
  assert root < plain
  for budget, every in ((plain, 0), (plain - 1, 'sqrt')):
    asked = configure(budget / 2**30)
    chosen = remat_budget.resolve(asked, tokenizer.Bytes(), SHAPES)
    assert chosen.remat.every == every and chosen.remat.layers == 0
    assert needed(chosen) <= budget


def test_a_budget_that_holds_no_plan_is_refused(monkeypatch):
  config = configure(1e-6)
  plans = [remat_budget._with(config, plan) for plan in remat_budget.PLANS]
  assert None not in plans and len({*plans}) == len(plans)
  monkeypatch.setattr(remat_budget, 'PLANS', remat_budget.PLANS[:2])
  with pytest.raises(
    errors.InputError, match='8 rows of 32 tokens need .* GiB'
  ) as raised:
    remat_budget.resolve(config, tokenizer.Bytes(), SHAPES)
  least = needed(configure(0.0, 'sqrt'))
  assert f'need {least / 2**30:.3g} GiB' in str(raised.value)


def test_a_run_says_what_was_chosen(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.remat.update(every='auto', memory_gib=2.0)
  raw.train.update(steps=0, epochs=2.0)
  resolved = resolve.resolve(config_lib.parse(raw)).config
  assert resolved.given == {'remat.every': 'auto', 'train.steps': 0}
  line = 'resolved remat.every=0 (from remat.memory_gib=2.0)'
  assert line in resolve.describe(resolved).splitlines()
  assert config_lib.parse(config_lib.to_dict(resolved)) == resolved
