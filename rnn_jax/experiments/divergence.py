"""Whether a training diverges, as seen in what it prints.

Its loss, the mean over `train.log_every` steps, is compared with the first one
of the run. Numbers that aren't finite end a training by themselves, with an
error that begins with log.DIVERGED.
"""

import pathlib
import re

from rnn_jax.runs import metrics
from rnn_jax.training import log

LOSS = re.compile(r'step (\d+)/\d+  loss (\S+)')  # as launch.train prints it


class Watch:
  """Watches the losses of a run.

  Attributes:
    found: what diverged, or ''.
  """

  def __init__(self, folder: pathlib.Path, times: float) -> None:
    """Begins.

    Args:
      folder: of the run, which may have begun.
      times: how many times its first loss is too much; 0: no loss is.
    """
    losses = [
      row['loss']
      for row in metrics.read(folder)
      if row['split'] == 'train' and 'loss' in row
    ]
    self._first = next(iter(losses), None)
    self._times = times
    self.found = ''

  def see(self, line: str) -> None:
    """Looks at a line of its output."""
    match = LOSS.match(line)
    if not match:
      return
    step, loss = int(match[1]), float(match[2])
    if self._first is None:
      self._first = loss
    if self._times and loss > self._times * self._first and not self.found:
      self.found = (
        f'{log.DIVERGED}the training loss is {loss:.4g} at step {step}, more '
        f'than {self._times:g} times the first, {self._first:.4g} '
        '(--diverged_at)'
      )
