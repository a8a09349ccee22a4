"""The largest batch of a config for a memory budget, and its confirmation.

The compiler's account of a training step decides
(training/memory/batch_size.py). Real steps (trial.py) then check the account:
with that batch, with the next larger one, and with one a tenth larger. If the
first fails, smaller ones follow until one fits, then one between that and the
last that didn't.
"""

import math
from typing import NamedTuple

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import tables
from rnn_jax.profiling import trial
from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import target
from rnn_jax.training.memory import batch_size

GIB = 2**30
COLUMNS = (
  'rows',
  'arguments:.4f',
  'temporaries:.4f',
  'outputs:.4f',
  'total:.4f',
  'of budget:.1%',
)
CONFIRMED = ('confirmed', 'peak seen=peak')
SMALLER = 0.95  # times the rows that did not fit


class Result(NamedTuple):
  """The largest batch, `rows`, and what led to it.

  Attributes:
    memory: what the compiler says of {rows: a step}.
    trials: of real steps; empty unless requested.
  """

  rows: int
  budget: batch_size.Budget
  memory: dict[int, target.Memory]
  trials: list[trial.Trial]


def find(
  workload: workload_lib.Workload, budget: batch_size.Budget, confirm: bool
) -> Result:
  """Returns the largest batch; `confirm` checks it by real steps.

  Raises:
    InputError: not even the smallest batch fits.
  """
  length = workload.config.data.length
  search = batch_size.Search(workload.programs, length, workload.multiple)
  rows = search.largest(budget)
  shown = [rows, rows + workload.multiple]
  trials = []
  if confirm:
    trials = _confirm(workload, rows, budget)
    ran = [t.rows for t in trials if t.fits and t.rows <= rows]
    rows = max(ran, default=0)
    shown = [*shown, *(t.rows for t in trials)]
  sizes = {n: search.memory(n) for n in sorted(set(shown))}
  return Result(rows, budget, sizes, trials)


def report(
  config: config_lib.Config, gib: float | None, confirm: bool
) -> Result:
  """Finds the largest batch of a config, and prints how.

  Args:
    config: of a run.
    gib: the budget of a device; None: what this device has.
    confirm: whether real steps check the result.

  Raises:
    InputError: not even the smallest batch fits.
  """
  if gib is not None and not 0 < gib < 2**40:
    errors.refuse('--memory_gib', gib, 'give more than 0')
  given = None if gib is None else batch_size.gib(gib, '--memory_gib')
  if given and confirm:
    trial.check(given)
  workload = workload_lib.make(config)
  budget = given or trial.device_budget()
  print(workload.describe())
  print(f'budget: {budget.bytes / 2**30:.4g} GiB on each device', flush=True)
  result = find(workload, budget, confirm)
  print(f'{table(result)}\n(GiB, from the compiled program)')
  if not result.rows:
    raise errors.InputError(f'{budget.name}: no batch ran: give more memory')
  print(f'largest: {conclusion(result, workload)}')
  return result


def _confirm(workload, rows, budget):
  """Tries `rows` and more until one fails, or fewer until one fits.

  A larger batch that runs shows how far the compiler's account is off; the
  answer doesn't exceed that account.
  """
  multiple, config = workload.multiple, workload.config
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
  # Matmuls need little beyond the compiler's account: look closer.
  middle = (rows + failed) // 2 // multiple * multiple
  if trials[-1].fits and rows < middle < failed:
    trials.append(trial.run(config, middle, budget))
  return trials


def table(result: Result) -> str:
  """Returns a line for each batch: its memory in GiB and its trial."""
  trials = {t.rows: t for t in result.trials}
  rows = [
    {'rows': rows, 'total': size.total / GIB}
    | {name: n / GIB for name, n in size._asdict().items()}
    | {'of budget': size.total / result.budget.bytes}
    | _confirmation(trials.get(rows))
    for rows, size in result.memory.items()
  ]
  columns = COLUMNS + (CONFIRMED if trials else ())
  return '\n'.join(tables.of(rows, columns))


def _confirmation(one):
  if one is None:
    return {'confirmed': None, 'peak': None}
  if not one.fits:
    return {'confirmed': 'no', 'peak': one.error[:60]}
  return {'confirmed': 'yes', 'peak': f'{one.peak_bytes / GIB:.4f}'}


def conclusion(result: Result, workload: workload_lib.Workload) -> str:
  """Returns the flags of launch.train that set this batch."""
  data = workload.config.data
  others = [
    f'--config.data.{key}=0'
    for key in ('tokens_per_batch', 'memory_gib')
    if getattr(data, key)
  ]
  return ' '.join([f'--config.data.batch_size={result.rows}', *others])
