"""The metrics of training steps: collected, checked, written and shown."""

import math
import time
from typing import Any

import jax

from rnn_jax import errors
from rnn_jax.parallel import hosts
from rnn_jax.runs import goodput
from rnn_jax.runs import metrics as metrics_lib
from rnn_jax.training import trainer as trainer_lib
from rnn_jax.training import update_norms

Trainer = trainer_lib.Trainer
DIVERGED = 'diverged: '  # how the error of a run that diverged begins


class Log:
  """Collects the metrics of steps and writes them as one row."""

  def __init__(self, clock: goodput.Clock) -> None:
    # (step, metrics on the devices, tokens with padding)
    self._window: list[tuple[int, dict[str, Any], int]] = []
    self._timed = 0  # steps of the window that weren't compiled
    self._bytes: dict[tuple[int, ...], int | None] = {}  # by batch shape
    self._began = time.monotonic()
    self._spent = clock.seconds()  # up to the last row

  def record(self, trainer: Trainer) -> None:
    """Keeps the metrics of a step, without waiting for them."""
    weights_BxL = trainer.batch.weights_BxL
    self._bytes.setdefault(weights_BxL.shape, 0)
    self._window.append((trainer.step, trainer.metrics, weights_BxL.size))
    self._timed += not trainer.compiled
    trainer.display.advance()

  def restart(self) -> None:
    """Excludes the time until now from the next row."""
    self._began = time.monotonic()

  def write(self, trainer: Trainer) -> None:
    """Fetches, checks and writes the metrics since the last row.

    Raises:
      InputError: too many steps in a row were not finite.
    """
    if not self._window:
      return
    window, self._window = self._window, []
    values = jax.device_get([values for _, values, _ in window])
    seconds = time.monotonic() - self._began
    steps = [step for step, _, _ in window]
    _check_finite(trainer, steps, values)
    padded = sum(size for _, _, size in window)
    real = sum(int(value['real_tokens']) for value in values)
    progress = trainer.progress
    progress.real_tokens += real
    progress.padded_tokens += padded
    progress.seconds += seconds
    spent = write_goodput(trainer)
    row = _summary(trainer, values) | {
      'tokens': real,
      'seconds': seconds,
      'tokens_per_second': real / seconds,
      'padded_tokens_per_second': padded / seconds,
      'padding_efficiency': real / padded,
      'data_waiting_share': self._since('data', spent) / seconds,
      'goodput': goodput.fraction(spent, 'steps'),
      'first_step_seconds': trainer.first_step_seconds,
      'compiled_programs': trainer.programs.traces,
      'skipped_steps': progress.skipped_steps,
      'step_bytes': self._largest(trainer),
      'peak_memory_bytes': metrics_lib.peak_memory_bytes(),
    }
    trainer.writer.write(trainer.step, 'train', row)
    _report(trainer, row, self._seconds_per_step(spent))
    self._spent, self._timed = spent, 0
    self.restart()

  def _largest(self, trainer):
    """Returns the bytes of the largest step so far; None: they aren't known."""
    for shape in [shape for shape, size in self._bytes.items() if size == 0]:
      self._bytes[shape] = trainer.programs.train_bytes(*shape)
    return max(filter(None, self._bytes.values()), default=None)

  def _since(self, part, spent):
    """Returns the seconds of a part of the run since the last row."""
    return spent[part] - self._spent[part]

  def _seconds_per_step(self, spent):
    """Returns the seconds of a step without compilation; 0: none is known."""
    seconds = self._since('steps', spent) + self._since('data', spent)
    return seconds / self._timed if self._timed else 0.0


def write_goodput(trainer: Trainer) -> dict[str, float]:
  """Writes and returns the seconds of each part of the run."""
  seconds = trainer.clock.seconds()
  if hosts.is_first():
    goodput.write(trainer.workdir, trainer.step, seconds)
  return seconds


def diverged(trainer: Trainer, what: str) -> errors.InputError:
  """Returns the error of numbers that aren't finite, with the remedy."""
  config = trainer.config
  earlier = trainer.checkpoints.steps()
  steps = f' (--from_step, one of {earlier})' if earlier else ''
  half = config.train.precision == 'float16'
  return errors.InputError(
    f'{DIVERGED}{what}: lower '
    f'optimizer.learning_rate={config.optimizer.learning_rate!r} in a new '
    f'--workdir, or start from an earlier checkpoint{steps}'
    + ", or use train.precision='bfloat16', which has more range"
    * half
  )


def _check_finite(trainer, steps, values):
  limit = trainer.config.train.max_skipped_steps
  for step, value in zip(steps, values, strict=True):
    trainer.progress.skipped_steps += int(not value['finite'])
    if value['skipped'] >= limit:
      raise diverged(
        trainer,
        f'{limit} steps in a row, up to step {step}, had a non-finite loss '
        'or gradient and were skipped (train.max_skipped_steps)',
      )


def _summary(trainer, values):
  """Returns the task's metrics of all steps and others of the last step."""
  good = [value for value in values if value['finite']]
  row = {}
  if good:
    sums = jax.tree.map(
      lambda *x: sum(map(float, x)), *[value['sums'] for value in good]
    )
    if sums['weight']:  # else nothing was predicted: no figure
      row = trainer.programs.task.summarize(sums)
  last = (good or values)[-1]
  row['gradient_norm'] = float(last['gradient_norm'])
  if 'squares' in last:
    row |= update_norms.describe(**last['squares'])
  for name in ('learning_rate', 'loss_scale'):
    if name in values[-1]:
      row[name] = float(values[-1][name])
  return row


def _report(trainer, row, seconds_per_step):
  task = trainer.programs.task
  left = (trainer.config.train.steps - trainer.step) * seconds_per_step
  shown = f'{left / 60:.1f} min' if left >= 60 else f'{left:.0f} s'
  remaining = f'  {shown} left' if seconds_per_step else ''
  headline, name = task.headline
  if 'loss' not in row:
    text = (
      'no loss: nothing to predict in these steps'
      if math.isfinite(row['gradient_norm'])
      else 'every step skipped: the loss or the gradient is not finite'
    )
  else:
    text = f'loss {row["loss"]:.4f}  {row[headline]:.4f} {name}'
  trainer.display.report(
    trainer.step,
    f'{text}  {row["tokens_per_second"]:,.0f} {task.unit}/s '
    f'({row["padded_tokens_per_second"]:,.0f} padded){remaining}',
  )
