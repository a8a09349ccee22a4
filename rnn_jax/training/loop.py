"""A training run: from a config and a work folder to trained parameters.

The same call again resumes a run that was stopped. An interrupted run ends with
the same parameters as an uninterrupted one, bit for bit: a checkpoint (arrays,
the position in the data, `Progress`) holds all that the next step depends on.

All processes of a job (parallel/hosts.py) run this. Only the first one writes
and prints, except that each writes its own part of a checkpoint.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from rnn_jax import config as config_lib
from rnn_jax.parallel import hosts
from rnn_jax.runs import agreement
from rnn_jax.runs import metrics
from rnn_jax.runs import origin
from rnn_jax.runs import progress as progress_lib
from rnn_jax.runs import signals
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import activity
from rnn_jax.system import host
from rnn_jax.system import streams
from rnn_jax.training import assembly
from rnn_jax.training import hooks as hooks_lib
from rnn_jax.training import initialize
from rnn_jax.training import restore as restore_lib
from rnn_jax.training import trainer as trainer_lib

Trainer = trainer_lib.Trainer
DESCRIPTORS = 20  # that a save and the rest of a run have open at once


@dataclasses.dataclass(frozen=True)
class Start:
  """How a run starts, which isn't part of its config.

  Attributes:
    from_step: of the checkpoint to resume from; None: the newest. Newer ones
      are renamed, and no longer count.
    accept_new_data: the run may resume on other documents than it began with,
      which are then its own.
    init: the run that a new run begins with, or None; read only once.
    verify: checks all token files of the data, not as they are read.
    pause_at: the step after which the run stops, saved; None: its last.
  """

  from_step: int | None = None
  accept_new_data: bool = False
  init: origin.Init | None = None
  verify: bool = False
  pause_at: int | None = None


def train(
  config: config_lib.Config,
  workdir: str | os.PathLike,
  hooks: Iterable[Callable[[Trainer], None]] = (),
  stop: signals.StopRequest | None = None,
  start: Start = Start(),
) -> trainer_lib.Progress:
  """Trains, or resumes training, in a work folder.

  Args:
    config: of the run.
    workdir: path of its folder.
    hooks: called with the Trainer after each step and after the standard hooks
      (training/hooks.py).
    stop: names the signal that stopped the run, afterwards.
    start: how it starts.

  Returns:
    Progress; `finished` is empty if a signal or `start` stopped the run.

  Raises:
    InputError: bad data or config, a folder of another run, a full disk, no
      checkpoint of `from_step`, or numbers that aren't finite: too many steps
      in a row, a validation loss, parameters.
  """
  stop = stop or signals.StopRequest()
  with _opened(config, workdir, start) as trainer, _stoppable(trainer, stop):
    hooks_lib.add_all(trainer, stop)
    if start.pause_at is not None:
      hooks_lib.pause(trainer, start.pause_at)
    for hook in hooks:
      trainer.add_hook(hook)

    trainer.clock.enter('steps')
    for hook in trainer.start_hooks:
      hook(trainer)
    steps = trainer.config.train.steps
    with activity.doing('training', steps, 'steps') as done:
      done(trainer.step)
      while not trainer.is_done:
        trainer.next_batch()
        with trainer.step_clock():
          trainer.state, trainer.metrics = trainer.programs.train_step(
            trainer.state, trainer.batch
          )
        trainer.step += 1
        done(1)
        for hook in trainer.hooks_due():
          hook(trainer)
    for hook in trainer.end_hooks:
      hook(trainer)
    return trainer.progress


@contextlib.contextmanager
def _opened(config, workdir, start) -> Iterator[Trainer]:
  """Opens and restores a run; its folder is locked, and closed at the end."""
  agreement.check(config_lib.to_dict(config))
  host.check_descriptors(DESCRIPTORS, 'training')
  hosts.run_on_first(lambda: metrics.check(config.metrics.writers))
  source = initialize.open_source(start.init, workdir, config)
  resolved = assembly.resolve(
    config, workdir, source, start.accept_new_data, start.verify
  )
  given = config_lib.to_dict(resolved.config)
  lock = hosts.run_on_first(
    lambda: workdir_lib.open_for_training(workdir, given)
  )
  with streams.guarded(), lock or contextlib.nullcontext():
    hosts.check_shared(f'{workdir}/{workdir_lib.CONFIG}')
    with contextlib.closing(assembly.make(resolved, workdir)) as trainer:
      if start.from_step is not None:
        trainer.checkpoints.set_aside_after(start.from_step)
      restore_lib.restore(trainer, source)
      with _reporting(trainer):
        yield trainer


@contextlib.contextmanager
def _stoppable(trainer, stop):
  """Inside it signals stop the run, saved."""
  with stop:
    stop.finish = lambda: trainer.stop(stop.name or '')
    stop.lost = trainer.lost
    yield


@contextlib.contextmanager
def _reporting(trainer):
  """Opens the first process's metrics file and progress display."""
  if hosts.is_first():
    trainer.writer = metrics.Writer(
      trainer.workdir, trainer.step, trainer.config.metrics.writers
    )
    steps = trainer.config.train.steps
    trainer.display = progress_lib.Display(steps, trainer.step)
  try:
    yield
  finally:
    trainer.display.close()
    trainer.writer.close()
