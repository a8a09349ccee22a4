"""When hooks are called."""

import types

import numpy as np
import pytest

from rnn_jax.runs import goodput
from rnn_jax.training import hooks
from rnn_jax.training import log as log_lib
from rnn_jax.training import trainer as trainer_lib


def make(steps):
  """Returns a Trainer without parts that takes `steps` steps."""
  config = types.SimpleNamespace(train=types.SimpleNamespace(steps=steps))
  others = (
    'workdir',
    'corpus',
    'programs',
    'batches',
    'row_multiple',
    'checkpoints',
    'clock',
  )
  return trainer_lib.Trainer(config=config, **dict.fromkeys(others))


def run(trainer):
  """Takes all steps, or until the trainer is done."""
  while not trainer.is_done and not trainer.at_last_step:
    trainer.step += 1
    for hook in trainer.hooks_due():
      hook(trainer)


@pytest.mark.parametrize(
  ('every', 'steps'),
  ((1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6, 7]), (7, [7]), (9, [7]), (0, [7])),
)
def test_a_hook_is_called_every_n_steps_and_after_the_last(every, steps):
  trainer, seen = make(7), []
  trainer.add_hook(lambda trainer: seen.append(trainer.step), every)
  run(trainer)
  assert seen == steps


def test_hooks_are_called_in_the_order_in_which_they_were_added():
  trainer, seen = make(2), []
  for name, every in (('a', 2), ('b', 1), ('c', 0)):
    trainer.add_hook(lambda _, name=name: seen.append(name), every)
  run(trainer)
  assert seen == ['b', 'a', 'b', 'c']


class Request:
  """A signal that arrives during step 2."""

  name = 'SIGTERM'

  def wanted(self, step):
    return step >= 2


def test_a_signal_stops_between_two_steps():
  trainer = make(5)
  trainer.add_hook(hooks.stop_after(Request()))
  run(trainer)
  assert (trainer.step, trainer.stopped_by) == (2, 'SIGTERM')
  assert trainer.is_done and not trainer.progress.finished


def test_a_finished_run_isnt_stopped():
  trainer = make(2)
  trainer.add_hook(hooks.finish, every=0)
  trainer.add_hook(hooks.stop_after(Request()))
  run(trainer)
  assert trainer.progress.finished == 'all steps' and not trainer.stopped_by


class Clock:
  """The seconds of a run, as a test sets them."""

  def __init__(self):
    self.spent = dict.fromkeys(goodput.PARTS, 0.0)

  def seconds(self):
    return dict(self.spent)


def test_the_time_left_is_that_of_steps_without_compilation():
  clock = Clock()
  log = log_lib.Log(clock)
  trainer = make(1000)
  trainer.batch = types.SimpleNamespace(weights_BxL=np.zeros((2, 3)))
  trainer.metrics = {}
  for compiled in (True, False, False, False):
    trainer.compiled = compiled
    log.record(trainer)
  clock.spent |= {'compile': 90.0, 'evaluation': 5.0, 'steps': 5.0, 'data': 1.0}
  assert log._seconds_per_step(clock.seconds()) == 2.0
  log = log_lib.Log(clock)
  trainer.compiled = True
  log.record(trainer)
  assert log._seconds_per_step(clock.seconds()) == 0.0
