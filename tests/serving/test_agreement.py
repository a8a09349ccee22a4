"""What an engine finds out of its programs, and does with drafts."""

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.inference import drafts
from rnn_jax.inference import sampling
from rnn_jax.serving import agreement
from rnn_jax.serving import engine
from rnn_jax.serving import widths
from tests.serving import models

pytestmark = pytest.mark.native
GREEDY = sampling.Sampling(0.0)
PROMPT = 'abcabcabc'


def make(**options):
  """An engine of one slot, which drafts."""
  values = {'slots': 1, 'draft_tokens': 3} | options
  return models.make(models.generator(), **values)


def ask(**changes):
  values = {'max_new_tokens': 50, 'stop_at_boundary': False} | changes
  return models.ask(PROMPT, **{'sampling': GREEDY} | values)


@pytest.fixture(scope='module', name='plain')
def _plain():
  return make(draft_tokens=0)


@pytest.fixture(scope='module', name='drafting')
def _drafting():
  return make()


@pytest.mark.parametrize(
  'changes',
  (
    {},
    {'alternatives': 3, 'n': 2},
    {'stop': ('ab',), 'min_new_tokens': 7},
    {'sampling': sampling.Sampling(0.3), 'seed': 5, 'max_new_tokens': 300},
  ),
  ids=repr,
)
def test_a_row_has_the_same_bits_with_drafts(plain, drafting, changes):
  request = ask(**changes)
  drafting.warm_up()
  before = drafting.stats()
  with jax.transfer_guard('disallow'):
    got = models.alone(drafting, request)
  assert got == models.alone(plain, request)
  stats = drafting.stats()
  runs = stats.draft_runs - before.draft_runs
  tokens = stats.draft_tokens - before.draft_tokens
  assert runs < tokens


def test_a_row_with_penalties_has_no_drafts(plain, drafting):
  penalty = sampling.Sampling(0.0, frequency_penalty=0.1)
  request, before = ask(sampling=penalty), drafting.stats()
  assert models.alone(drafting, request) == models.alone(plain, request)
  stats = drafting.stats()
  assert stats.draft_runs - before.draft_runs == 50
  assert stats.draft_tokens - before.draft_tokens == 50


def test_drafts_that_change_a_bit_are_not_used(monkeypatch, plain):
  compile_all = widths.compile_all

  def disturbed(*arguments):
    programs = compile_all(*arguments)
    (program,) = programs
    draft = program.draft

    def differ(*given):
      carry, *rest = draft(*given)
      logits = np.array(carry.logits_BxV)
      logits[-1, 0] = np.nextafter(logits[-1, 0], 9)
      return carry._replace(logits_BxV=logits), *rest

    program.draft = differ
    return programs

  monkeypatch.setattr(widths, 'compile_all', disturbed)
  served = make()
  assert models.alone(served, ask()) == models.alone(plain, ask())
  assert served.stats().draft_runs == 0


def test_checks_that_take_longer_than_they_save_are_not_made(
  monkeypatch, plain
):
  monkeypatch.setattr(agreement, 'cost', lambda *_: 4.5)
  served = make()
  assert models.alone(served, ask()) == models.alone(plain, ask())
  assert served.stats().draft_runs == 0


def test_a_check_has_a_cost(monkeypatch):
  monkeypatch.undo()  # it is measured
  measured, costs = agreement.cost, []

  def note(*given):
    costs.append(measured(*given))
    return costs[-1]

  monkeypatch.setattr(agreement, 'cost', note)
  make().warm_up()
  assert costs[0] > 0


def test_what_cannot_be_drafted_is_refused(monkeypatch):
  with pytest.raises(errors.InputError, match='draft_tokens=17: give 0 to 16'):
    engine.Options(draft_tokens=17)
  monkeypatch.setattr(drafts, 'lacking', lambda *_: 'bits would differ')
  with pytest.raises(errors.InputError, match='draft_tokens=3: bits .*: give'):
    make()
