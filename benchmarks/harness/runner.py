"""Runs the cases of a suite; see benchmarks.run."""

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import time
from collections.abc import Iterator

from benchmarks.harness import case as case_lib
from benchmarks.harness import comparison
from benchmarks.harness import rehearsal
from benchmarks.harness import rows
from benchmarks.harness import workers
from rnn_jax import errors
from rnn_jax.system import activity

SAME = ('device', 'commit')  # what a row that --resume keeps agrees in


@dataclasses.dataclass(frozen=True)
class Request:
  """What to run."""

  suite: str
  only: str = ''  # a pattern that the names of cases contain
  repeats: int = 0  # 0: each case's own
  until: float = 0.0  # repeat until intervals are so narrow; 0: don't
  minutes: float = 0.0  # after which no case is started; 0: no limit
  quick: bool = False  # small sizes
  rehearse: bool = False  # see rehearsal.py
  resume: bool = False
  folder: str | os.PathLike = rows.RESULTS


def run(request: Request) -> None:
  """Runs the cases, appends a row for each and prints a line.

  Cases that are compared run together, in turns. Where a suite has
  `at_once(case)`, so many of them start and compile side by side. All others
  run one after another.

  Raises:
    InputError: a suite that doesn't exist or can't run here, a wrong pattern,
      number or interpreter.
  """
  began = time.monotonic()
  suite = case_lib.load(request.suite)
  if request.rehearse:
    request = _rehearsed(suite, request)
  cases = suite.cases(request.quick)
  if request.repeats:
    cases = [
      dataclasses.replace(case, repeats=case.repeats and request.repeats)
      for case in cases
    ]
  chosen = choose(cases, request)
  where = workers.environment()
  if not request.rehearse:
    _check_platform(suite, request.suite, where)
  others = _other_environments(chosen)
  pending = [*_pending(chosen, request, where)]
  with contextlib.ExitStack() as stack:
    reference = None
    timed = getattr(suite, 'TIMED', False) and not request.rehearse
    if pending and timed:
      with activity.doing('preparing the reference step'):
        reference = stack.enter_context(comparison.reference(request.quick))
    written = set()
    at_once = None if request.rehearse else getattr(suite, 'at_once', None)
    for group in _groups(pending, cases, at_once):
      if request.minutes and time.monotonic() - began > 60 * request.minutes:
        left = len({case.name for case in pending} - written)
        print(f'{left} cases are left for --resume', flush=True)
        break
      beside = f' and {len(group) - 1} beside it'
      with activity.doing(group[0].name + beside * (len(group) > 1)):
        if request.rehearse:
          measured = [rehearsal.run(suite, case) for case in group]
        else:
          measured = _measure(group, reference, request.until)
        for case, values in zip(group, measured, strict=True):
          if case.name not in written:
            there = others.get(case.interpreter, where)
            _write(case, values, request, there)
          written.add(case.name)


def share(percentage: str) -> float:
  """The number that a percentage such as '2%' means.

  Raises:
    InputError: it isn't one of 0% to 99%.
  """
  try:
    number = float(percentage.removesuffix('%')) / 100
  except ValueError:
    number = -1.0
  if not 0 <= number < 1:
    raise errors.InputError(f'--until={percentage!r}: give one of 0% to 99%')
  return number


def together(
  chosen: list[case_lib.Case], cases: list[case_lib.Case]
) -> Iterator[list[case_lib.Case]]:
  """Groups of cases that are measured together: the base, then others.

  A base is measured again with each group.

  Args:
    chosen: the cases to measure.
    cases: all of the suite, among them the bases.
  """
  by_name = {case.name: case for case in cases}
  others: dict[str, list[case_lib.Case]] = {}
  for case in chosen:
    compared = others.setdefault(case.base or case.name, [])
    if case.base not in ('', case.name):
      compared.append(case)
  for base, compared in others.items():
    for first in range(0, max(len(compared), 1), comparison.TOGETHER):
      part = compared[first : first + comparison.TOGETHER]
      yield [by_name[base], *part]


def _groups(pending, cases, at_once):
  if at_once is None:
    yield from together(pending, cases)
    return
  for number, alike in itertools.groupby(pending, at_once):
    left = [*alike]
    while left:
      yield left[:number]
      del left[:number]


def choose(cases: list[case_lib.Case], request: Request) -> list[case_lib.Case]:
  """The cases that a request asks for.

  Raises:
    InputError: a malformed pattern, or one that no name contains.
  """
  try:
    pattern = re.compile(request.only)
  except re.error as error:
    raise errors.InputError(f'--only={request.only!r}: {error}') from error
  if request.repeats < 0:
    raise errors.InputError(f'--repeats={request.repeats}: give 1 or more')
  chosen = [case for case in cases if pattern.search(case.name)]
  if not chosen:
    names = [case.name for case in cases]
    raise errors.InputError(f'--only={request.only!r}: no case of {names}')
  return chosen


def _rehearsed(suite, request):
  if not hasattr(suite, 'compiles_ahead'):
    raise errors.InputError(
      f"--suite={request.suite!r} has no rehearsal: only a GPU's has"
    )
  return dataclasses.replace(request, quick=True)


def _check_platform(suite, name, where):
  needed = getattr(suite, 'PLATFORM', '')
  if needed and where['platform'] != needed:
    raise errors.InputError(
      f'--suite={name!r} needs a {needed.upper()}, and jax finds only a '
      f'{where["platform"]} here: run it on a machine with one, or --rehearse'
    )


def _other_environments(cases):
  """{interpreter: its workers.environment()} of cases with another Python."""
  found = {}
  for interpreter in {case.interpreter for case in cases} - {''}:
    if not shutil.which(interpreter):
      errors.refuse(
        case_lib.PYTHON,
        interpreter,
        'give the Python of an environment with rnn_jax; `make test-other` '
        'creates one in .venv-other',
      )
    found[interpreter] = workers.environment(interpreter)
  return found


def _done(request, where):
  """The identities of rows that need not be measured again."""
  if not request.resume:
    return []
  keys = (*case_lib.Case('', '').identity(), 'quick')
  return [
    {key: row.get(key) for key in keys}
    for row in rows.read(request.suite, request.folder)
    if all(row.get(key) == where[key] for key in SAME)
    and row.get('failure') != 'missing'
  ]


def _pending(chosen, request, where):
  """Yields the cases to measure; says or writes why others aren't."""
  done = _done(request, where)
  for case in chosen:
    if case.identity() | {'quick': request.quick} in done:
      print(f'{case.name}: has its row', flush=True)
    elif lacking := not request.rehearse and _lacking(case, where):
      missing = {'failure': 'missing', 'error': lacking}
      _write(case, missing, request, where)
    else:
      yield case


def _measure(group, reference, until):
  if reference is None:
    alone = len(group) == 1
    return map(workers.run, group) if alone else workers.run_side_by_side(group)
  return comparison.run(group, reference, until)


def _write(case, values, request, where):
  """Appends the row of a case and prints a line."""
  row = {'suite': request.suite, **case.identity(), 'quick': request.quick}
  rows.append(request.suite, row | values, where, request.folder)
  print(f'{case.name}: {_summary(values)}', flush=True)


def _lacking(case, where):
  """What the case needs and this machine hasn't, in words; or ''."""
  if case.platform not in ('', where['platform']):
    return f'needs a {case.platform}: this is {where["device"]}'
  if case.core_limit > where['cores']:
    return f'needs {case.core_limit} cores: there are {where["cores"]}'
  return ''


def _summary(values):
  if 'rehearsal' in values:
    return rehearsal.summary(values)
  if 'error' in values:
    return values['error']
  if 'median' not in values:
    return 'done'
  text = f'{values["median"]:.6g} s ± {values["deviation"]:.2g}'
  if 'base' in values:
    low, high = values['ratio_low'], values['ratio_high']
    text += (
      f', {values["ratio"]:.3f} ({low:.3f} to {high:.3f}) of {values["base"]}'
    )
  return text
