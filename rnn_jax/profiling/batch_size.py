"""The largest batch of a config for a budget of memory, and its confirmation.

The compiler's account of a training step decides (training/memory.py). Real
steps (trial.py) then show whether the account holds: at the batch found, at the
next larger one, and at one that is a tenth larger; where the first fails, at
smaller ones until one fits, and at one between that and the last that didn't.
"""

import math
from typing import NamedTuple

from rnn_jax.profiling import subject as subject_lib
from rnn_jax.profiling import trial
from rnn_jax.training import memory

HEADER = (
  'rows',
  'arguments',
  'temporaries',
  'outputs',
  'total',
  'of budget',
)
TRIED = ('confirmed', 'peak seen')
SMALLER = 0.95  # times the rows that did not fit


class Found(NamedTuple):
  """What was found; `rows` is the answer.

  Attributes:
    memory: {rows: program_memory.ProgramMemory}, of the batches to show.
    trials: of real steps; empty where none were asked for.
  """

  rows: int
  budget: memory.Budget
  memory: dict
  trials: list[trial.Trial]


def find(
  subject: subject_lib.Subject, budget: memory.Budget, confirm: bool
) -> Found:
  """Returns the largest batch, confirmed by real steps if asked to.

  Raises:
    InputError: not even the smallest batch fits.
  """
  length = subject.config.data.length
  search = memory.Search(subject.steps, length, subject.multiple)
  rows = search.largest(budget)
  shown = [rows, rows + subject.multiple]
  trials = []
  if confirm:
    trials = _confirm(subject, rows, budget)
    ran = [t.rows for t in trials if t.fits and t.rows <= rows]
    rows = max(ran, default=0)
    shown = [*shown, *(t.rows for t in trials)]
  sizes = {n: search.memory(n) for n in sorted(set(shown))}
  return Found(rows, budget, sizes, trials)


def _confirm(subject, rows, budget):
  """Trials of `rows` and more, until one fails; or of fewer, until one fits.

  A larger batch that runs shows how far the compiler's account is from the
  truth; the answer does not exceed that account.
  """
  multiple, config = subject.multiple, subject.config
  larger = math.ceil(1.1 * rows / multiple) * multiple
  trials = []
  for n in dict.fromkeys((rows, rows + multiple, larger)):
    trials.append(trial.run(config, n, budget))
    if not trials[-1].fits:
      break
  failed = rows
  while rows > multiple and not trials[-1].fits and not trials[0].fits:
    failed = rows
    rows = max(int(SMALLER * rows / multiple), 1) * multiple
    trials.append(trial.run(config, rows, budget))
  # What matmuls need beside the compiler's account is little: look closer.
  middle = (rows + failed) // 2 // multiple * multiple
  if trials[-1].fits and rows < middle < failed:
    trials.append(trial.run(config, middle, budget))
  return trials


def table(found: Found) -> str:
  """Returns a line for each batch: its memory in GiB, and its trial."""
  trials = {t.rows: t for t in found.trials}
  header = HEADER + (TRIED if trials else ())
  lines = [header]
  for rows, size in found.memory.items():
    gib = [f'{n / 2**30:.4f}' for n in (*size, size.total)]
    line = [str(rows), *gib, f'{size.total / found.budget.bytes:.1%}']
    if trials:
      line += _tried(trials.get(rows))
    lines.append(line)
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return '\n'.join(
    '  '.join(f'{x:>{w}}' for x, w in zip(line, widths, strict=True))
    for line in lines
  )


def _tried(tried):
  if tried is None:
    return ['-', '-']
  if not tried.fits:
    return ['no', tried.error[:60]]
  return ['yes', f'{tried.peak_bytes / 2**30:.4f}']


def conclusion(found: Found, subject: subject_lib.Subject) -> str:
  """Returns what to set, a flag of launch.train."""
  data = subject.config.data
  others = [
    f'--config.data.{key}=0'
    for key in ('tokens_per_batch', 'memory_gib')
    if getattr(data, key)
  ]
  return ' '.join([f'--config.data.batch_size={found.rows}', *others])
