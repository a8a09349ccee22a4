"""Tables of series as users give them, trained on and forecast."""

from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

HEAD = b'unique_id,ds,y\n'
DAYS = b''.join(b'a,2026-01-%02d,%d\n' % (n, n) for n in range(1, 31))
COLUMNS = b','.join(b'c%d' % n for n in range(10**6)) + b'\n1\n'
HOSTILE = {  # what is wrong: a table, and what the refusal says
  'text in a column of numbers': (
    HEAD + DAYS + b'a,2026-01-31,high\n',
    r"t\.csv:32: .*'high'.*isn't a number",
  ),
  'a million columns': (COLUMNS, '1,000,000 columns'),
  'dates of year 1': (HEAD + b'a,0001-01-01,1\n' + DAYS, r't\.csv:2: .*1678'),
  'dates of year 9999': (HEAD + DAYS + b'a,9999-01-01,1\n', '1678 to 2261'),
  'two frequencies': (
    HEAD + DAYS + b''.join(b'b,2026-01-01 %02d:00,1\n' % n for n in range(9)),
    "'b' has a reading every h|every h, and 'a'",
  ),
  'series of one row': (HEAD + b'a,2026-01-01,1\n', 'two readings'),
  'nothing but missing readings': (
    HEAD + b''.join(b'a,2026-01-%02d,\n' % n for n in range(1, 31)),
    'none of 1 series',
  ),
  'an infinity': (HEAD + DAYS + b'a,2026-01-31,-inf\n', r't\.csv:32: .*-inf'),
  'a time twice': (HEAD + DAYS + b'a,2026-01-30,1\n', r't\.csv:32: .*twice'),
  'rows out of order': (HEAD + DAYS + b'a,2026-01-02,1\n', 'sort its rows'),
  'no UTF-8': (HEAD + DAYS + b'\xff\xfe,2026-01-02,1\n', 'UTF-8'),
  'zeros': (bytes(4096), ''),
  'an unfinished quote': (HEAD + b'"a,2026-01-01,1\n' * 3, ''),
}
WORKS = {
  'constant': HEAD + b''.join(b'a,2026-01-%02d,7\n' % n for n in range(1, 31)),
  'gaps': HEAD
  + DAYS.replace(b',5\n', b',\n').replace(b'a,2026-01-09,9\n', b''),
  'huge and tiny': HEAD
  + DAYS
  + b''.join(b'b,2026-01-%02d,%de300\n' % (n, n) for n in range(1, 31))
  + b''.join(b'c,2026-01-%02d,%de-300\n' % (n, n) for n in range(1, 31)),
}


def tables(shared: base.Base) -> Iterator[commands.Attempt]:
  """Trains on hostile tables, and on odd ones that must work."""
  for name, (content, says) in HOSTILE.items():
    if says:
      yield commands.Attempt(name, 'train', _train(shared, content), says=says)
    else:
      yield commands.Attempt(
        name, 'train', _train(shared, content), expects='either'
      )
  for name, content in WORKS.items():
    yield commands.Attempt(
      name, 'train', _train(shared, content), expects='success'
    )


def _train(shared, content):
  write = base.file('t.csv', content)
  return lambda folder: shared.train(
    folder / 'run',
    task__name='forecasting',
    data__source='series',
    data__path=write(folder),
    data__horizon=3,
    data__window=8,
    data__splits='(90, 5, 5)',
    train__steps=1,
    train__checkpoint_every=1,
    evaluate__every=1,
    sample__new_tokens=0,
  )
