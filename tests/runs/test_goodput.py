"""Seconds by part, and what a restart keeps of them."""

import json

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax.runs import goodput
from rnn_jax.runs import metrics
from rnn_jax.training import loop
from tests.support import tiny


class Time:
  """A clock that moves only when a test sets it."""

  def __init__(self):
    self.at = 100.0

  def __call__(self):
    return self.at


def spent(**seconds):
  return dict.fromkeys(goodput.PARTS, 0.0) | seconds


def test_each_second_counts_for_one_part():
  now = Time()
  clock = goodput.Clock(now)
  now.at += 1
  clock.enter('steps')
  now.at += 2
  with clock.part('checkpoint'):
    now.at += 4
    with clock.part('data'):
      now.at += 8
    now.at += 16
  with clock.part('steps'):
    now.at += 32
    clock.rename('compile')
  now.at += 64
  assert clock.seconds() == spent(
    startup=1, steps=2 + 64, checkpoint=4 + 16, data=8, compile=32
  )
  parts = [goodput.fraction(clock.seconds(), part) for part in goodput.PARTS]
  assert sum(parts) == pytest.approx(1, abs=1e-12)


CASES = {
  # (step and seconds of the file, those of the checkpoint) -> earlier time
  'nothing before': (None, (0, {}), spent()),
  'killed after its checkpoint': (
    (9, spent(startup=2, steps=7)),
    (6, spent(startup=2, steps=4)),
    spent(startup=2, steps=4, lost=3),
  ),
  'killed before its first checkpoint': (
    (3, spent(startup=2, steps=3)),
    (0, {}),
    spent(lost=5),
  ),
  'lost before, and again': (
    (9, spent(startup=3, steps=7, lost=5)),
    (6, spent(startup=2, steps=4, lost=5)),
    spent(startup=2, steps=4, lost=9),
  ),
  'stopped with a save': (
    (6, spent(startup=2, steps=4, checkpoint=1)),
    (6, spent(startup=2, steps=4)),
    spent(startup=2, steps=4, checkpoint=1),
  ),
  'the file is gone': (None, (6, spent(steps=4)), spent(steps=4)),
}


@pytest.mark.parametrize('case', CASES)
def test_a_process_adds_the_seconds_of_earlier_ones(case, tmp_path):
  written, (step, saved), expected = CASES[case]
  if written:
    goodput.write(tmp_path, *written)
  now = Time()
  clock = goodput.Clock(now)
  now.at += 1
  clock.resume(saved, step, tmp_path)
  assert clock.seconds() == expected | {'startup': expected['startup'] + 1}


def test_an_interrupted_run_counts_what_it_lost(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.model.layers = 1
  raw.train.update(steps=4, log_every=1, checkpoint_every=2)
  raw.evaluate.every = 2
  config, workdir = config_lib.parse(raw), tmp_path / 'run'

  def interrupt(trainer):
    if trainer.step == 3:
      raise InterruptedError

  with pytest.raises(InterruptedError):
    loop.train(config, str(workdir), hooks=[interrupt])
  kept = json.loads((workdir / goodput.NAME).read_text())
  assert kept['step'] == 3  # a step after the best checkpoint
  assert sum(kept['shares'].values()) == pytest.approx(1, abs=1e-12)
  assert goodput.machine_of(workdir)['platform'] == jax.default_backend()
  assert goodput.machine_of(tmp_path / 'none') == {}
  assert kept['seconds']['lost'] == 0
  for part in ('startup', 'compile', 'steps', 'checkpoint', 'evaluation'):
    assert kept['seconds'][part] > 0, part

  progress = loop.train(config, str(workdir))
  again = json.loads((workdir / goodput.NAME).read_text())
  assert again['step'] == raw.train.steps
  assert again['seconds']['lost'] > 0
  assert sum(again['seconds'].values()) > sum(kept['seconds'].values())
  assert progress.parts['lost'] == again['seconds']['lost']
  rows = [r for r in metrics.read(workdir) if r['split'] == 'train']
  assert 0 < rows[-1]['goodput'] < 1
