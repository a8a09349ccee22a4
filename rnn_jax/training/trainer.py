"""A training run in progress: the state of the loop, which hooks read."""

import concurrent.futures
import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import grain
import jax

from rnn_jax import config as config_lib
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.runs import goodput
from rnn_jax.runs import metrics as metrics_lib
from rnn_jax.runs import progress as progress_lib
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.runs.checkpoints import sections as sections_lib
from rnn_jax.system import activity
from rnn_jax.training import ahead as ahead_lib
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import train_state

ALL_STEPS = 'all steps'  # how a run ends that nothing cuts short


@dataclasses.dataclass
class Progress:
  """The part of a checkpoint that isn't arrays.

  Attributes:
    held_out_loss: of an evaluation after this step, or None.
    best_loss: the lowest held-out loss so far, or None.
    best_step: its step.
    evaluations_since_best: the number of evaluations after that one.
    evaluation_due: whether a signal cut the evaluation after this step.
    real_tokens: tokens trained on so far.
    padded_tokens: the same, including padding.
    skipped_steps: the number of steps that were not finite.
    seconds: of training steps.
    finished: '' until training ends, then ALL_STEPS or why it ended early.
    planned_steps: `train.steps` as of this step.
    parts: seconds by part of the run, see runs/goodput.py.
  """

  held_out_loss: float | None = None
  best_loss: float | None = None
  best_step: int = 0
  evaluations_since_best: int = 0
  evaluation_due: bool = False
  real_tokens: int = 0
  padded_tokens: int = 0
  skipped_steps: int = 0
  seconds: float = 0.0
  finished: str = ''
  planned_steps: int = 0
  parts: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False, kw_only=True)
class Trainer:
  """The parts of a run and its progress; training/assembly.py makes it.

  Attributes:
    config: of the run, with automatic choices (batch size, remat) filled in.
    workdir: path of its folder.
    corpus: its documents.
    programs: its compiled steps.
    batches: iterator over training batches, on the devices.
    row_multiple: divides the rows of each training batch.
    checkpoints: its checkpoints.
    clock: where its wall time goes.
    state: the train state, once it is restored.
    sections: of its checkpoints.
    step: the number of steps taken.
    compiled: whether the last one had to be compiled first.
    batch: of the last step.
    data_state: of `batches`, just after that batch.
    metrics: of the last step, on the devices; see step.make_train_step.
    progress: saved with the train state.
    saved: the step of the newest checkpoint, or None.
    skipped_at_save: `progress.skipped_steps` as of that checkpoint.
    stopped_by: the signal that asked it to stop, such as 'SIGTERM', or ''.
    compiling: the compilation of the training step, or None.
    opened: time.monotonic() when the run was opened.
    first_step_seconds: from `opened` to the end of the first step, or None.
    writer: of metrics; only the first process's writes to disk.
    display: of progress; only the first process's prints.
    start_hooks: called once, before the first step of this process.
    end_hooks: called once, when training ends or a signal stops it.
  """

  config: config_lib.Config
  workdir: str | os.PathLike
  corpus: corpus_lib.Corpus
  programs: programs_lib.Programs
  batches: grain.DatasetIterator
  row_multiple: int
  checkpoints: checkpoint.Checkpoints
  clock: goodput.Clock
  state: train_state.TrainState = dataclasses.field(init=False)
  sections: tuple[sections_lib.Section, ...] = dataclasses.field(init=False)
  step: int = 0
  compiled: bool = False
  batch: batch_lib.Batch = dataclasses.field(init=False)
  data_state: dict[str, Any] = dataclasses.field(init=False)
  metrics: dict[str, Any] = dataclasses.field(init=False)
  progress: Progress = dataclasses.field(default_factory=Progress)
  saved: int | None = None
  skipped_at_save: int = 0
  stopped_by: str = ''
  compiling: concurrent.futures.Future | None = None
  opened: float = dataclasses.field(default_factory=time.monotonic)
  first_step_seconds: float | None = None
  writer: Any = dataclasses.field(default_factory=metrics_lib.NoWriter)
  display: Any = dataclasses.field(default_factory=progress_lib.NoDisplay)
  start_hooks: list['Hook'] = dataclasses.field(default_factory=list)
  end_hooks: list['Hook'] = dataclasses.field(default_factory=list)
  _hooks: list[tuple['Hook', int]] = dataclasses.field(default_factory=list)
  _compiled: set[tuple[int, ...]] = dataclasses.field(default_factory=set)
  _ahead: ahead_lib.Ahead = dataclasses.field(default_factory=ahead_lib.Ahead)
  _busy: threading.Lock = dataclasses.field(default_factory=threading.Lock)

  def __post_init__(self) -> None:
    self._busy.acquire()

  def add_hook(self, hook: 'Hook', every: int = 1) -> None:
    """Calls `hook(trainer)` after every n-th step and after the last one.

    Hooks run in the order in which they were added. With `every=0` only the
    last step calls it.
    """
    self._hooks.append((hook, every))

  def hooks_due(self) -> Iterator['Hook']:
    """Yields the hooks to call after the step that was just taken."""
    for hook, every in self._hooks:
      if self.at_last_step or (every and self.step % every == 0):
        yield hook

  @property
  def at_last_step(self) -> bool:
    """Whether all steps of the config have been taken."""
    return self.step >= self.config.train.steps

  @property
  def is_done(self) -> bool:
    """Whether to take no more steps."""
    return bool(self.progress.finished or self.stopped_by)

  def next_batch(self) -> None:
    """Fetches the batch of the next step."""
    with self.clock.part('data'), self.at_rest():
      batch = next(self.batches)
    self.batch, self.data_state = batch, self.batches.get_state()

  @contextlib.contextmanager
  def step_clock(self) -> Iterator[None]:
    """Times its body as a step, or as a compilation if one happens."""
    with self.clock.part('steps'):
      traces = self.programs.traces
      self._compile()
      yield
      self._ahead.wait(self.metrics)
      if self.first_step_seconds is None:
        self._ahead.finish()
      self.compiled = self.programs.traces > traces
      if self.compiled:
        self.clock.rename('compile')

  @contextlib.contextmanager
  def at_rest(self) -> Iterator[None]:
    """Inside it another thread may save the run and end the process.

    The body doesn't change what a checkpoint holds, see `stop`.
    """
    self._busy.release()
    try:
      yield
    finally:
      self._busy.acquire()

  def stop(self, name: str) -> bool:
    """Ends a run that is at rest, for another thread than the loop's.

    The loop takes no step after that.

    Args:
      name: of the signal that asked for it.

    Returns:
      False while a step or a save is running: nothing was done.
    """
    if not self._busy.acquire(blocking=False):
      return False
    self.stopped_by = name
    for hook in self.end_hooks:
      hook(self)
    return True

  def lost(self) -> str:
    """Says which steps a process that ends now loses."""
    saved = self.checkpoints.newest_complete() or 0
    if saved >= self.step:
      return f'nothing is lost, step {saved} is saved'
    count = self.step - saved
    after = f'the checkpoint of step {saved}' if saved else 'the start'
    lost = f'{count:,} step{"s are" if count > 1 else " is"} lost'
    then = 'resumes there' if saved else 'starts again'
    return f'{lost}, all since {after}; the same command {then}'

  def _compile(self):
    """Compiles the step for a new shape of batches, at rest."""
    shape = self.batch.weights_BxL.shape
    # Several processes compile within the step, all in the same order.
    if shape in self._compiled or jax.process_count() > 1:
      return
    with (
      self.clock.part('compile'),
      self.at_rest(),
      activity.doing(f'compiling step {self.step + 1}'),
    ):
      if self.compiling is not None:
        self.compiling.result()
        self.compiling = None
      self.programs.compile_train(*shape)
    self._compiled.add(shape)

  def close(self) -> None:
    """Ends the threads of the input pipeline and of the checkpoints."""
    self.batches.close()
    self.checkpoints.close()


Hook = Callable[[Trainer], None]
