"""Hooks of the training loop: log, evaluate, save, stop, draw.

Each hook is a function of the Trainer, see `trainer.Trainer.add_hook`.
"""

import concurrent.futures
import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import jax

from rnn_jax.data import pipeline
from rnn_jax.parallel import hosts
from rnn_jax.runs import goodput
from rnn_jax.runs import signals
from rnn_jax.system import activity
from rnn_jax.system import files
from rnn_jax.training import evaluate as evaluate_lib
from rnn_jax.training import log as log_lib
from rnn_jax.training import train_state
from rnn_jax.training import trainer as trainer_lib

Trainer = trainer_lib.Trainer
PAUSED = 'paused'  # how the last message of a paused run begins


def add_all(trainer: Trainer, stop: signals.StopRequest) -> None:
  """Adds the hooks of every run.

  Args:
    trainer: of a restored run.
    stop: the signals that may stop it.
  """
  config, log = trainer.config, log_lib.Log(trainer.clock)
  evaluate, save = Evaluate(log), Save(log)
  trainer.add_hook(first_step)
  trainer.add_hook(log.record)
  trainer.add_hook(log.write, every=config.train.log_every)
  trainer.add_hook(evaluate.forget)
  trainer.add_hook(evaluate, every=config.evaluate.every)
  trainer.add_hook(finish, every=0)
  trainer.add_hook(save.if_best)
  trainer.add_hook(save, every=config.train.checkpoint_every)
  trainer.add_hook(stop_after(stop))
  trainer.start_hooks += [evaluate.again, save.again]
  trainer.end_hooks += [log.write, save, save.wait, report_end, draw_loss]


def first_step(trainer: Trainer) -> None:
  """Reports the time to the first step, and compiles the evaluation."""
  if trainer.first_step_seconds is not None:
    return
  seconds = trainer.first_step_seconds = time.monotonic() - trainer.opened
  trainer.display.say(f'first step after {seconds:.1f} s')
  with trainer.clock.part('compile'):
    _compile_evaluation(trainer)


class Evaluate:
  """Evaluates on held-out documents; ends a run that no longer improves."""

  def __init__(self, log: log_lib.Log) -> None:
    self._log = log

  def forget(self, trainer: Trainer) -> None:
    """Drops the held-out loss of an earlier step."""
    trainer.progress.held_out_loss = None

  def __call__(self, trainer: Trainer) -> None:
    if not len(trainer.corpus.documents['validation']):
      return
    self._log.write(trainer)
    config, progress = trainer.config, trainer.progress
    values = _evaluate(trainer)
    loss = values['loss']
    if config.evaluate.criterion == 'errors':
      loss = 1 - values['accuracy']
    improved = _record_loss(trainer, loss)
    row = values | {'best': float(improved)}
    trainer.writer.write(trainer.step, 'validation', row)
    if not math.isfinite(loss):
      raise log_lib.diverged(
        trainer, f'step {trainer.step}: the validation loss is {loss}'
      )
    since = progress.evaluations_since_best
    trainer.state = trainer.programs.states.rescale(trainer.state, since)
    headline, name = trainer.programs.task.headline
    trainer.display.say(
      f'step {trainer.step}  validation loss {values["loss"]:.4f}  '
      f'{values[headline]:.4f} {name}{"  (best)" if improved else ""}'
    )
    if config.evaluate.patience and since >= config.evaluate.patience:
      progress.finished = f'no better for {since} evaluations'
      trainer.display.say(f'stopped early: {progress.finished}')
    self._log.restart()

  def again(self, trainer: Trainer) -> None:
    """Does the evaluation that a signal cut, before this process's steps."""
    if trainer.progress.evaluation_due:
      self(trainer)
      if trainer.at_last_step:
        finish(trainer)
      trainer.saved = None  # its checkpoint lacks the evaluation


class Save:
  """Saves checkpoints, each step at most once, and only good ones.

  One without a step that counted since the last save would only push out a
  better one: a run whose steps are all skipped, of which nothing was learnt.
  """

  def __init__(self, log: log_lib.Log) -> None:
    self._log = log

  def if_best(self, trainer: Trainer) -> None:
    """Saves a step whose evaluation is the best so far."""
    if trainer.progress.best_step == trainer.step:
      self(trainer)

  def __call__(self, trainer: Trainer, *, replace: bool = False) -> None:
    if trainer.saved == trainer.step or not trainer.step:
      return
    self._log.write(trainer)
    if not _is_worth_saving(trainer):
      return
    trainer.progress.parts = trainer.clock.seconds()
    with trainer.clock.part('checkpoint'):
      values = {
        'data': trainer.data_state,
        'progress': dataclasses.asdict(trainer.progress),
      }
      trainer.checkpoints.save(
        trainer.step,
        trainer.sections,
        trainer.state.entries() | values,
        replace=replace,
      )
    trainer.saved = trainer.step
    trainer.skipped_at_save = trainer.progress.skipped_steps
    self._log.restart()

  def again(self, trainer: Trainer) -> None:
    """Saves a step once more if its first checkpoint lacks the evaluation."""
    if trainer.step and trainer.saved is None:
      self(trainer, replace=True)

  def wait(self, trainer: Trainer) -> None:
    """Returns when the last checkpoint is on disk."""
    with trainer.clock.part('checkpoint'):
      trainer.checkpoints.wait()


def finish(trainer: Trainer) -> None:
  """Marks a run finished after its last step."""
  progress = trainer.progress
  progress.finished = progress.finished or trainer_lib.ALL_STEPS


def stop_after(request: signals.StopRequest) -> Callable[[Trainer], None]:
  """Returns a hook that stops a run between two steps after a signal."""

  def stop(trainer):
    if not trainer.is_done and request.wanted(trainer.step):
      trainer.stopped_by = request.name or ''

  return stop


def pause(trainer: Trainer, step: int) -> None:
  """Adds the hooks that stop a run, saved, once it has taken `step` steps."""

  def stop(trainer):
    if trainer.step >= step and not trainer.is_done:
      trainer.stopped_by = PAUSED

  trainer.start_hooks.append(stop)
  trainer.add_hook(stop)


def report_end(trainer: Trainer) -> None:
  """Reports why a run stopped early, and where its time went."""
  if trainer.stopped_by:
    same = 'same' + ' without --pause_at' * (trainer.stopped_by == PAUSED)
    saved = f'saved at step {trainer.saved}; the {same} command resumes it'
    if trainer.saved is None:
      saved = 'nothing to save yet; the same command starts again'
    trainer.display.say(f'{trainer.stopped_by}: {saved}')
  trainer.display.say(goodput.table(log_lib.write_goodput(trainer)))


def draw_loss(trainer: Trainer) -> None:
  """Draws the learning curve into the run's folder."""

  def draw():
    from rnn_jax.training import plots  # matplotlib takes long to import

    with (
      activity.doing('drawing the curve'),
      files.may_be_missed(f'{trainer.workdir}/loss.png'),
    ):
      plots.draw_loss(trainer.workdir, trainer.config)

  hosts.run_on_first(draw)


def in_background(
  function: Callable[..., Any], *args: Any
) -> concurrent.futures.Future:
  """Calls `function(*args)` on a new thread and returns its Future."""
  pool = concurrent.futures.ThreadPoolExecutor(1)
  future = pool.submit(function, *args)
  pool.shutdown(wait=False)
  return future


def _compile_evaluation(trainer):
  """Compiles the evaluation step while training steps run."""
  if not len(trainer.corpus.documents['validation']):
    return
  config, programs = trainer.config, trainer.programs
  shapes = pipeline.heldout_shapes(
    trainer.corpus,
    config,
    'validation',
    programs.row_multiple,
    config.evaluate.tokens,
  )
  if jax.process_count() > 1 or len(shapes) > 1:
    return
  # Traced here: in the background, a step's clock would count the trace.
  in_background(programs.trace_evaluate(*shapes[0]).lower().compile)


def _evaluate(trainer):
  """Returns the metrics of the validation split."""
  trainer.progress.evaluation_due = True  # if it is cut
  with trainer.clock.part('evaluation'), trainer.at_rest():
    run = evaluate_lib.Run(
      trainer.config,
      trainer.corpus,
      trainer.programs,
      trainer.state.params,
      trainer.step,
    )
    values = run.evaluate('validation', trainer.config.evaluate.tokens)
  trainer.progress.evaluation_due = False
  return values


def _is_worth_saving(trainer):
  """Whether any step since the last save counted; refuses what isn't finite."""
  skipped = trainer.progress.skipped_steps - trainer.skipped_at_save
  if skipped and skipped >= trainer.step - (trainer.saved or 0):
    if trainer.progress.finished:
      raise log_lib.diverged(
        trainer,
        f'the last {skipped} steps, up to step {trainer.step}, had a '
        'non-finite loss or gradient and were skipped: nothing of them is '
        'saved',
      )
    trainer.display.say(
      f'step {trainer.step} is not saved: every step since the last '
      'checkpoint was skipped'
    )
    return False
  state = trainer.state
  if not train_state.all_finite((state.params, state.opt_state)):
    raise log_lib.diverged(
      trainer,
      f'step {trainer.step} is not saved: its parameters or the state of the '
      'optimizer are not finite',
    )
  return True


def _record_loss(trainer, loss):
  """Records a held-out loss; returns whether it is the best so far."""
  progress, pruning = trainer.progress, trainer.config.pruning
  if pruning.sparsity and trainer.step <= pruning.end_step:
    return False  # more parameters will be pruned
  progress.held_out_loss = loss
  best = progress.best_loss
  improved = math.isfinite(loss) and (best is None or loss < best)
  if improved:
    progress.best_loss, progress.best_step = loss, trainer.step
  since = 0 if improved else progress.evaluations_since_best + 1
  progress.evaluations_since_best = since
  return improved
