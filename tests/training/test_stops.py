"""A stop in any phase is saved, and the resumed run ends as an uncut one."""

import os
import signal
import threading

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.runs import bundle
from rnn_jax.runs import metrics
from rnn_jax.system import signal_thread
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import shared
from tests.support import tiny

STEPS = 6
# A thread that ends as the process would.
pytestmark = pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)


class Ended(Exception):
  """The process would have ended."""


class Cut:
  """Stops a run while its main thread hangs in a phase."""

  def __init__(self, monkeypatch):
    self._patch = monkeypatch
    self._ended = threading.Event()
    self.codes = []
    monkeypatch.setattr(signal_thread, 'GRACE', 0.0)
    monkeypatch.setattr(signal_thread, 'end_now', self._end)
    restore = loop.restore_lib.restore

    def restore_and_keep(trainer, source):
      self.trainer = trainer
      restore(trainer, source)
      self.set_trap(trainer)

    monkeypatch.setattr(loop.restore_lib, 'restore', restore_and_keep)

  def hang(self):
    os.kill(os.getpid(), signal.SIGTERM)
    assert self._ended.wait(100)
    raise Ended

  def _end(self, code):
    self.codes.append(code)
    self.trainer._busy.release()  # the main thread must end here
    self._ended.set()
    raise SystemExit


class DuringData(Cut):
  """At step 3, just after the iterator has moved on."""

  def set_trap(self, trainer):
    batches, cut, taken = trainer.batches, self, []

    class Batches:
      def __next__(self):
        batch = next(batches)
        taken.append(batch)
        if len(taken) == 4:
          cut.hang()
        return batch

      def __getattr__(self, name):
        return getattr(batches, name)

    trainer.batches = Batches()


class DuringEvaluation(Cut):
  """After step 2 of 6, the best so far."""

  def set_trap(self, trainer):
    self._patch.setattr(evaluate.Run, 'evaluate', lambda *_: self.hang())


class DuringCompilation(Cut):
  """Before the first step."""

  def set_trap(self, trainer):
    trainer.compiling = None
    self._patch.setattr(
      trainer.programs, 'compile_train', lambda *_: self.hang()
    )


def result(config, workdir):
  """(the parameters of the last and the best step, the losses) of a run."""
  both = [bundle.read(workdir, which) for which in ('latest', 'best')]
  saved = [(each.step, each.params) for each in both]
  rows = [(r['step'], r['split'], r['loss']) for r in metrics.read(workdir)]
  return saved, rows


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


@pytest.fixture(scope='module')
def config(tmp_path_factory):
  raw = tiny.raw_config(tiny.write_text(tmp_path_factory.mktemp('text')))
  raw.data.boundaries = (32,)
  raw.model.layers = 1
  raw.train.steps = STEPS
  raw.train.log_every = 1
  raw.train.checkpoint_every = 4
  raw.evaluate.every = 2
  # The schedule depends on evaluations.
  raw.schedule.name = 'plateau'
  raw.schedule.patience = 1
  return config_lib.parse(raw)


@pytest.fixture(scope='module')
def uncut(config, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('runs') / 'uncut'
  loop.train(config, workdir)
  return result(config, workdir)


@pytest.mark.parametrize(
  ('phase', 'saved'),
  ((DuringData, 3), (DuringEvaluation, 2), (DuringCompilation, None)),
)
def test_a_stop_saves_and_the_run_resumes_exactly(
  phase, saved, config, uncut, tmp_path, capsys
):
  workdir = tmp_path / 'run'
  with pytest.MonkeyPatch.context() as patch:
    cut = phase(patch)
    with pytest.raises(Ended):
      loop.train(config, workdir)
  assert cut.codes == [143]
  steps = sorted(p.name for p in (workdir / 'checkpoints').glob('[0-9]*'))
  assert (str(saved) in steps) if saved else not steps
  losses = {row['step'] for row in metrics.read(workdir)}
  assert losses == set(range(1, (saved or 0) + 1))
  assert (workdir / 'goodput.json').exists()
  capsys.readouterr()

  loop.train(config, workdir)
  if saved:
    assert f'resumed at step {saved}' in capsys.readouterr().out
  (last, best), rows = result(config, workdir)
  (uncut_last, uncut_best), uncut_rows = uncut
  assert sorted(rows) == sorted(uncut_rows)
  for (step, params), (uncut_step, uncut_params) in (
    (last, uncut_last),
    (best, uncut_best),
  ):
    assert step == uncut_step
    jax.tree.map(np.testing.assert_array_equal, params, uncut_params)
  assert not [*(workdir / 'checkpoints').glob('*replaced*')]


def test_what_a_process_loses_that_ends_at_once(config, tmp_path):
  said = []

  def watch(trainer):
    trainer.checkpoints.wait()
    said.append(trainer.lost())

  loop.train(config, tmp_path / 'run', hooks=[watch])
  assert said[0] == (
    '1 step is lost, all since the start; the same command starts again'
  )
  assert said[1] == 'nothing is lost, step 2 is saved'
  assert said[2] == (
    '1 step is lost, all since the checkpoint of step 2; the same command '
    'resumes there'
  )
