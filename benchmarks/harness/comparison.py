"""Measures cases in turns, in rounds that a reference step begins and ends.

  round 1:  reference, base, case, case, ..., reference
  round 2:  reference, base, case, case, ..., reference

Each is a process of its own and waits while another runs, see turns.py. The
reference is a training step of the published model, the same for every suite.
"""

import contextlib
import os
from collections.abc import Iterator
from collections.abc import Sequence

from benchmarks.harness import case as case_lib
from benchmarks.harness import measure
from benchmarks.harness import ratios
from benchmarks.harness import workers

TOGETHER = 4  # processes beside the base's and the reference's, for memory
AROUND = 5  # reference steps before and after a case that takes no turns
PATIENCE = 20  # times its repeats, a case is repeated for `until` at most


@contextlib.contextmanager
def reference(quick: bool) -> Iterator[workers.Worker]:
  """A process that is ready to take reference steps.

  Raises:
    RuntimeError: it can't take them.
  """
  parameters = {'batch': 2, 'length': 32} if quick else {}
  workload = 'workloads.published_model.train_step'
  case = case_lib.Case('reference', workload, parameters)
  with workers.Worker(case, 'turns') as worker:
    worker.wait_for_request()
    if worker.result is not None:
      raise RuntimeError(f'no reference step: {worker.result}')
    yield worker


def run(
  cases: Sequence[case_lib.Case], reference: workers.Worker, until: float = 0.0
) -> list[measure.Values]:
  """The values of cases; the first is the one that others are compared with.

  Args:
    cases: what to measure, at least one.
    reference: see `reference`.
    until: rounds are added until the intervals of ratios reach no farther than
      this share of them; 0: a case's own number.

  Returns:
    What each case measured or its error, with `floor`, the noise of this
    measurement, and `load`, that of the machine before it; of those after the
    first also `ratio`, `ratio_low`, `ratio_high`, `rounds` and `base`.
  """
  load = os.getloadavg()[0]
  before = _steps(reference, AROUND)
  with contextlib.ExitStack() as stack:
    members = []
    for case in cases:
      members.append(stack.enter_context(workers.Worker(case, 'turns')))
      members[-1].wait_for_request()
    first, last = _rounds(members, reference, until)
    results = [member.finish() for member in members]
  if not first:
    first, last = before, _steps(reference, AROUND)
  same = {'floor': ratios.of(last, first).floor, 'load': load}
  return [
    result | same | _compared(member, members[0])
    for member, result in zip(members, results, strict=True)
  ]


def _rounds(members, reference, until):
  """Seconds of the reference at the begin and the end of each round."""
  first, last = [], []
  base = members[0]
  running = [member for member in members if member.result is None]
  while running:
    first += _steps(reference, 1)
    for member in running:
      member.take_turn()
    last += _steps(reference, 1)
    needed = [m for m in running if not _is_done(m, base, until)]
    # The base runs as long as another one does.
    if needed and base not in needed and base.result is None:
      needed.insert(0, base)
    running = needed
  return first, last


def _steps(reference, count):
  for _ in range(count):
    reference.take_turn()
  if reference.result is not None:
    raise RuntimeError(f'the reference step failed: {reference.result}')
  return reference.seconds[-count:]


def _is_done(member, base, until):
  """Whether a case needs no further turn."""
  rounds = len(member.seconds)
  if member.result is not None:
    return True
  if rounds < max(member.case.repeats, 1):
    return False
  if not until or rounds >= PATIENCE * max(member.case.repeats, 1):
    return True
  return ratios.of(member.seconds, base.seconds).width <= until


def _compared(member, base):
  if member is base or not (member.seconds and base.seconds):
    return {}
  ratio = ratios.of(member.seconds, base.seconds)
  return {
    'base': base.case.name,
    'ratio': ratio.ratio,
    'ratio_low': ratio.low,
    'ratio_high': ratio.high,
    'rounds': ratio.rounds,
  }
