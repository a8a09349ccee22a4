"""How far predictions of a GPU's kernels are from what was measured.

Each program of the suite `gpu` that ran on an H100 or H200, and that XLA can
compile for one that isn't attached, is compiled again. A row has the seconds
that its kernels would take at the peak figures, by kind, and the prediction
(rnn_jax/profiling/kernel_times.py), which the report compares with what was
measured. It also fits the numbers of the prediction to these programs. Nothing
runs.

  python -m benchmarks.run --suite=calibration

It needs the packages of cuda12 or cuda13, and no GPU. The programs are those of
this commit and of these versions; what was measured has its own.
"""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import rows as rows_lib
from benchmarks.harness import tables

TARGETS = {'NVIDIA H100 80GB HBM3': 'h100', 'NVIDIA H200': 'h200'}
WORKLOADS = (
  'workloads.gpu_kernels.passes',
  'suites.gpu.step',
  'suites.vision.train',
)
OURS = ('pallas', 'chunked')  # of gpu_kernels
KINDS = ('matmul', 'memory', 'kernel')  # of kernel_times
BOUNDS = (0.02, 0.95)  # of a share
LONGEST = 20e-6  # of a launch, seconds


class Point(NamedTuple):
  """A program that was measured.

  Attributes:
    limits: {kind: seconds of its kernels at the peak figures}.
    launches: how many kernels it runs.
    predicted: seconds.
    measured: seconds.
  """

  limits: dict[str, float]
  launches: int
  predicted: float
  measured: float


def cases(quick: bool) -> list[case.Case]:
  """Each measured program, for its GPU."""
  listed = [
    case.Case(
      f'{target}: {row["case"]}',
      'suites.calibration.limits',
      {
        'target': target,
        'workload': row['workload'],
        'parameters': row['parameters'],
      },
      repeats=0,
      timeout=1800.0,
    )
    for target, rows in measured().items()
    for row in rows.values()
  ]
  return listed[: 1 if quick else None]


def measured() -> dict[str, tables.Rows]:
  """{target: {case: the newest row that was measured there}}."""
  found: dict[str, tables.Rows] = {}
  for row in rows_lib.read('gpu'):
    who = row['parameters'].get('who', OURS[0])
    if row.get('device') in TARGETS and 'median' in row and not row['quick']:
      if row['workload'] in WORKLOADS and who in OURS:
        found.setdefault(TARGETS[row['device']], {})[row['case']] = row
  return found


def limits(target: str, workload: str, parameters: tables.Row) -> tables.Row:
  """What the kernels of a workload take of a GPU at its peak figures.

  Args:
    target: a GPU.
    workload: as of a Case.
    parameters: of the workload.

  Raises:
    RuntimeError: the workload compiled nothing.
  """
  import importlib
  import os

  from benchmarks.harness import rehearsal
  from rnn_jax.system import target as target_lib

  os.environ['RNN_JAX_NATIVE'] = '0'  # GPUs don't have it either
  module = importlib.import_module(case.module_of(workload))
  run = getattr(module, workload.rpartition('.')[2])
  with target_lib.using(target):
    try:
      run(repeats=1, **parameters)
    except rehearsal.Compiled as compiled:
      return compiled.values
  raise RuntimeError(f'{workload} compiled nothing')


def points(rows: tables.Rows) -> dict[str, Point]:
  """{name: Point} of the rows whose program was measured."""
  known, found = measured(), {}
  for name, row in rows.items():
    target, _, rest = name.partition(': ')
    seconds = known.get(target, {}).get(rest, {}).get('median')
    if seconds and 'kinds' in row:
      found[name] = Point(
        {kind: one['limit_seconds'] for kind, one in row['kinds'].items()},
        sum(one['launches'] for one in row['kinds'].values()),
        sum(one['seconds'] for one in row['kinds'].values()),
        seconds / _repeated(row),
      )
  return found


def _repeated(row):
  """How many steps a measurement of that program has."""
  given = row['parameters']['parameters']
  return given['pictures'] // given['rows'] if 'pictures' in given else 1


def fit(some: Sequence[Point]) -> dict[str, float]:
  """Shares by kind and the seconds of a launch, of the least squared logs.

  Args:
    some: the programs that they are fitted to.

  Returns:
    {kind: share, 'launch': seconds}.
  """
  import numpy as np
  from scipy import optimize

  limits = np.array([[p.limits.get(k, 0.0) for k in KINDS] for p in some])
  launches = np.array([p.launches for p in some])
  measured = np.array([p.measured for p in some])

  def residuals(x):
    predicted = limits @ np.exp(-x[:-1]) + launches * x[-1] * LONGEST
    return np.log(predicted / measured)

  low = [math.log(BOUNDS[0])] * len(KINDS) + [0.0]
  high = [math.log(BOUNDS[1])] * len(KINDS) + [1.0]
  start = [math.log(0.5)] * len(KINDS) + [0.1]
  best = optimize.least_squares(residuals, start, bounds=(low, high))
  shares = dict(zip(KINDS, np.exp(best.x[:-1]).tolist(), strict=True))
  return shares | {'launch': float(best.x[-1]) * LONGEST}


def predict(point: Point, model: Mapping[str, float]) -> float:
  """The seconds that a model predicts."""
  kernels = sum(limit / model[kind] for kind, limit in point.limits.items())
  return kernels + point.launches * model['launch']


def error(found: Sequence[Point]) -> tuple[float, float]:
  """The median and the largest error: by how much the larger time exceeds."""
  import statistics

  ratios = [point.predicted / point.measured for point in found]
  off = [max(ratio, 1 / ratio) - 1 for ratio in ratios]
  return statistics.median(off), max(off)


select = tables.newest_of_any_device  # nothing is timed


def sentence() -> str:
  """What is said beside predictions; '' without rows."""
  rows = next(iter(select(rows_lib.read('calibration')).values()), {})
  if not (found := points(rows)):
    return ''
  median, largest = error([*found.values()])
  return (
    f'Predictions of {len(found)} measured programs are off by {median:.0%} '
    f'(median), {largest:.0%} at most.'
  )


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Each program's prediction, and what a fit to all of them would be."""
  del plots
  found = points(rows)
  if not found:
    return
  median, largest = error([*found.values()])
  yield (
    f'Predictions of {len(found)} programs are off by {median:.0%} (median), '
    f'{largest:.0%} at most.'
  )
  yield tables.by_row(
    'program',
    {name: {'point': point} for name, point in found.items()},
    {
      'kernels': lambda row: f'{row["point"].launches:,}',
      'at the limit': lambda row: tables.seconds(
        sum(row['point'].limits.values())
      ),
      'predicted': lambda row: tables.seconds(row['point'].predicted),
      'measured': lambda row: tables.seconds(row['point'].measured),
      'predicted / measured': lambda row: tables.times(
        row['point'].predicted / row['point'].measured
      ),
    },
  )
  if len(found) > 2 * len(KINDS):
    model = fit([*found.values()])
    shares = ', '.join(f'{kind} {model[kind]:.0%}' for kind in KINDS)
    yield (
      f'Least squares of all of them: {shares} of the limit, '
      f'{tables.seconds(model["launch"])} a launch.'
    )
