"""Runs the cases of a suite one after the other; see benchmarks.run."""

import dataclasses
import os
import re

from benchmarks.harness import case as case_lib
from benchmarks.harness import rows
from benchmarks.harness import workers
from rnn_jax import activity
from rnn_jax import errors

SAME = ('device', 'commit')  # what a row that --resume keeps agrees in


@dataclasses.dataclass(frozen=True)
class Request:
  """What to run."""

  suite: str
  only: str = ''  # a pattern that the names of cases contain
  repeats: int = 0  # 0: each case's own
  quick: bool = False
  resume: bool = False
  folder: str | os.PathLike = rows.RESULTS


def run(request: Request) -> None:
  """Runs the cases, appends a row for each and prints a line.

  Raises:
    InputError: a suite that doesn't exist or can't run here, a wrong pattern
      or number.
  """
  suite = case_lib.load(request.suite)
  chosen = choose(suite.cases(request.quick), request)
  where = workers.environment()
  _check_platform(suite, request.suite, where)
  done = _done(request, where)
  for number, case in enumerate(chosen, 1):
    identity = case.identity() | {'quick': request.quick}
    label = f'{number}/{len(chosen)} {case.name}'
    if identity in done:
      print(f'{label}: has its row', flush=True)
      continue
    with activity.doing(label):
      values = _measure(case, where)
    row = {'suite': request.suite, **identity, **values}
    rows.append(request.suite, row, where, request.folder)
    print(f'{label}: {_summary(values)}', flush=True)


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
  return [
    dataclasses.replace(case, repeats=case.repeats and request.repeats)
    if request.repeats
    else case
    for case in chosen
  ]


def _check_platform(suite, name, where):
  needed = getattr(suite, 'PLATFORM', '')
  if needed and where['platform'] != needed:
    raise errors.InputError(
      f'--suite={name!r} needs a {needed.upper()}, and jax finds only a '
      f'{where["platform"]} here: run it on a machine with one'
    )


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


def _measure(case, where):
  if lacking := _lacking(case, where):
    return {'failure': 'missing', 'error': lacking}
  return workers.run(case)


def _lacking(case, where):
  """What the case needs and this machine hasn't, in words; or ''."""
  if case.platform not in ('', where['platform']):
    return f'needs a {case.platform}: this is {where["device"]}'
  if case.core_limit > where['cores']:
    return f'needs {case.core_limit} cores: there are {where["cores"]}'
  return ''


def _summary(values):
  if 'error' in values:
    return values['error']
  if 'median' not in values:
    return 'done'
  return f'{values["median"]:.6g} s ± {values["deviation"]:.2g}'
