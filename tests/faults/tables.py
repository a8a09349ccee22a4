"""Tables as users give them: each file goes to each command that reads it.

What a spreadsheet, a data frame or a hub writes must work, or be refused in a
line that names the cause; what no reader can take is named, too. Each file is
given to training, preparation, prediction and evaluation alike, so that one
command doesn't read what another refuses. A training or an evaluation compiles
programs for longer than it reads: most of those that must read a file are given
something that is missing, and refuse that after they have read all rows.
"""

import gzip
import io
import json
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

from tests.faults import base
from tests.faults import commands
from tests.faults import given

TEXTS = (
  'the gate reads', 'a key, and a "state"; both', 'forgets\nit writes',
  'café ü 末', "it's a state", 'a gate = 7', 'the key', 'writes a state',
  'reads', 'a', 'the state forgets a key', 'gate',
)  # fmt: skip
LABELS = tuple(given.CLASSES[n % 2] for n in range(len(TEXTS)))
YES, NO, READ = 'success', 'refusal', 'read'
GOOD = READ, YES, YES, READ
MISSING = {  # what a command refuses after it has read all rows
  'train': '--config.data.validation_path=none.csv',
  'evaluate': '--checkpoint=7',
}
LONG = 80_000_000  # bytes of a line that no table has
COMMANDS = 'train', 'prepare', 'predict', 'evaluate'


class File(NamedTuple):
  """A table, and what each command should do with it.

  Attributes:
    name: what is tried.
    file: its name.
    content: its bytes, or what makes them.
    expects: of COMMANDS, in that order; '': not tried; READ: that it reads all
      rows.
    says: a pattern that a refusal holds.
    flags: {command: more flags}.
  """

  name: str
  file: str
  content: bytes | Callable[[], bytes]
  expects: tuple[str, str, str, str]
  says: str = ''
  flags: dict[str, tuple[str, ...]] = {}


def tables(shared: base.Base) -> Iterator[commands.Attempt]:
  """Trains on, prepares, predicts and evaluates tables of users."""
  classifier = given.classifier_of(shared)
  for each in (*_separated(), *_encoded(), *_lines(), *_parquet(), *_labels()):
    for command, expects in zip(COMMANDS, each.expects, strict=True):
      if not expects:
        continue
      yield commands.Attempt(
        f'{command}: {each.name}',
        command,
        _arguments(shared, classifier, command, each),
        expects=NO if expects == READ else expects,
        says=_says(each, command, expects),
        check=_CHECKS.get(command),
      )
  yield from _outputs(classifier)
  yield from _texts(shared)


def _says(each, command, expects):
  if expects == READ:
    return 'validation_path' if command == 'train' else 'checkpoint'
  return each.says if expects == NO else ''


def _arguments(shared, classifier, command, each):
  """Returns a function of a folder that writes a file and returns flags."""
  write = base.file(each.file, each.content)
  flags = [*each.flags.get(command, ())]
  if each.expects[COMMANDS.index(command)] == READ:
    flags.append(MISSING[command])
  if command == 'predict':
    return given.predicted(classifier, write, flags=flags)
  if command == 'evaluate':
    return given.evaluated(classifier, write, flags)
  if command == 'prepare':
    return lambda folder: base.prepare(folder, write(folder), *flags)
  source = 'jsonl' if each.file.endswith('.jsonl') else 'csv'
  return lambda folder: [
    *_train(shared, folder, write(folder), source),
    *flags,
  ]


def _train(shared, folder, path, source, task='classification'):
  return shared.train(
    folder / 'run',
    data__source=source,
    data__path=path,
    data__splits='(50, 50, 0)',
    task__name=task,
    train__steps=1,
    evaluate__every=1,
    train__checkpoint_every=1,
    sample__new_tokens=0,
  )


def _whole(folder, ended):
  """All texts were predicted, and each has a class."""
  if ended.code:
    return None
  path = folder / 'out.jsonl'
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  texts = [row['text'] for row in rows]
  if len(texts) == len(TEXTS) and texts != [*TEXTS] and 'ü' in ''.join(texts):
    return 'silent', f'other texts: {texts[:3]}'
  lacks = [row for row in rows if row['label'] not in given.CLASSES]
  return ('silent', f'a row without a class: {lacks[0]}') if lacks else None


_CHECKS = {'predict': _whole, 'evaluate': given.finite}


def table(
  separator: str = ',', end: str = '\n', header: str = 'text,label'
) -> str:
  """Returns TEXTS and LABELS as CSV, quoted as RFC 4180 says."""
  lines = [header.replace(',', separator)]
  for text, label in zip(TEXTS, LABELS, strict=True):
    quoted = '"' + text.replace('"', '""') + '"'
    lines.append(f'{quoted}{separator}{label}')
  return end.join([*lines, ''])


def _csv(name, text, expects=GOOD, says='', flags=None):
  return File(name, 'x.csv', text.encode(), expects, says, flags or {})


def _separated():
  """Yields files as programs that write tables separate values."""
  for what, mark in (('commas', ','), ('semicolons', ';'), ('tabs', '\t')):
    for ends, end in (('LF', '\n'), ('CRLF', '\r\n'), ('CR', '\r')):
      name = f'a CSV of {what}, {ends} and a byte order mark'
      whole = (YES, YES, YES, YES) if ends == 'CRLF' else GOOD
      yield _csv(name, '\ufeff' + table(mark, end), whole)
  lines = (f'{w} reads\t{"good" if w > "h" else "bad"}' for w in base.WORDS * 2)
  named = '\n'.join(['text\tlabel', *lines])
  yield File('a TSV', 'x.tsv', named.encode(), GOOD)
  yield _csv("Excel's line sep=;", 'sep=;\r\n' + table(';', '\r\n'))
  rows = enumerate(['a gate,good', 'b,bad'] * 6)
  index = ',text,label\n' + ''.join(f'{n},{line}\n' for n, line in rows)
  yield _csv("pandas' index without a name", index)
  empty = 'text;label;;\r\n' + ''.join(
    f'{n} gates;good;;\r\n{n} keys;bad;;\r\n' for n in range(6)
  )
  yield _csv('empty columns at the end', empty)
  no = NO, NO, NO, NO
  yield _csv('bars, named', table('|'), flags=_delimiter('|'))
  two = _delimiter('ab')
  yield _csv('a delimiter of two characters', table('|'), no, 'delim', two)
  says = "separated by ';'"
  yield _csv('a row too long', table(';') + 'a;good;b\n', no, says)
  yield _csv('a name twice', table(';', header='text,text'), no, says)


def _delimiter(mark):
  """Returns the flags of all commands that name a delimiter."""
  flags = dict.fromkeys(COMMANDS, (f'--delimiter={mark}',))
  return flags | {'train': (f'--config.data.delimiter={mark}',)}


def _encoded():
  """Yields files that are no text in UTF-8, or no text at all."""
  no, few = (NO, NO, NO, NO), (NO, '', NO, '')
  rows = _rows(zip(TEXTS, LABELS, strict=True))
  csv, utf_16 = table().encode(), 'UTF-16'
  for name, content, says in (
    ('a gzip file', gzip.compress(csv), 'gzip'),
    ('an Excel workbook', b'PK\x03\x04\x14\0\x06\0' + bytes(80), 'zip|xlsx'),
    ('an old Excel workbook', b'\xd0\xcf\x11\xe0\xa1\xb1' + bytes(80), 'Excel'),
    ('a Parquet file', b'PAR1\x15\4' + bytes(80), 'Parquet'),
    ('an xz file', b'\xfd7zXZ\0' + bytes(80), 'xz'),
    ('text in UTF-16', table().encode('utf-16'), utf_16),
    ('text in big-endian UTF-16', '\ufeffa'.encode('utf-16-be'), utf_16),
    (
      'text in cp1252',
      table().replace('末', '').encode('cp1252'),
      'utf-8|UTF|JSON',
    ),
  ):
    yield File(f'{name} as .csv', 'x.csv', content, no, says)
    yield File(f'{name} as .jsonl', 'x.jsonl', content, few, says)
  long = b'text,label\n' + b'a' * LONG + b',good\n'
  yield File('a line of 80 MB', 'x.csv', lambda: long, no, 'line|value')
  mark = b'\xef\xbb\xbf' + rows
  yield File('JSON lines with a byte order mark', 'x.jsonl', mark, GOOD)


def _rows(pairs):
  return b''.join(
    json.dumps({'text': text, 'label': label}).encode() + b'\n'
    for text, label in pairs
  )


def _lines():
  """Yields JSON lines that aren't."""
  no = NO, NO, NO, NO
  rows = _rows(zip(TEXTS, LABELS, strict=True))
  old = rows.replace(b'\n', b'\r')
  says = 'carriage returns'
  yield File('JSON lines with old line ends', 'x.jsonl', old, no, says)
  array = b'[' + rows.replace(b'\n', b',\n')[:-2] + b']\n'
  yield File('a JSON array as lines', 'x.jsonl', array, no, 'JSON|object')
  listed = json.dumps([1]).encode() + b'\n'
  yield File(
    'a list in a line', 'x.jsonl', rows + listed, no, 'object per line'
  )


def _parquet():
  """Yields Parquet as hubs and data frames write it; training reads none."""
  import datetime

  import pyarrow
  from pyarrow import parquet

  columns = {'text': [*TEXTS], 'label': [*LABELS]}
  numbers = {'text': [*TEXTS], 'label': [n % 2 for n in range(len(TEXTS))]}
  hub = {'label': {'_type': 'ClassLabel', 'names': [*given.CLASSES]}}
  good = '', YES, YES, READ

  def file(values, info=None):
    written = io.BytesIO()
    table = pyarrow.table(values)
    if info is not None:
      metadata = {b'huggingface': json.dumps(info).encode()}
      table = table.replace_schema_metadata(metadata)
    parquet.write_table(table, written)
    return written.getvalue()

  for name, info in (
    ('a list', []),
    ('a number', 3),
    ('a list of features', {'info': {'features': [1]}}),
    ('classes that are numbers', {'info': {'features': {
      'label': {'_type': 'ClassLabel', 'names': [1, 2]}}}}),
  ):  # fmt: skip
    title = f'Parquet whose hub metadata are {name}'
    yield File(title, 'x.parquet', file(columns, info), good)
  named = {'info': {'features': hub}}
  yield File('Parquet of a hub', 'x.parquet', file(numbers, named), good)
  skips = dict.fromkeys(('prepare', 'evaluate'), ('--missing_labels=skip',))
  for name, label in (('-1', -1), ('null', None)):
    labels = [label, *numbers['label'][1:]]
    content = file({**numbers, 'label': labels}, named)
    hidden, skipped = ('', NO, YES, NO), ('', YES, '', READ)
    yield File(f'a label of {name}', 'x.parquet', content, hidden, 'label')
    yield File(f'{name}, skipped', 'x.parquet', content, skipped, flags=skips)
  count = len(TEXTS)
  moments = [10**18 + 1] * count
  far = pyarrow.timestamp('us')
  maps = pyarrow.map_(pyarrow.string(), pyarrow.int64())
  only_predicted = '', NO, YES, READ
  for name, column, expects in (
    ('nanoseconds', pyarrow.array(moments, pyarrow.timestamp('ns')), good),
    ('years beyond 9999', pyarrow.array([2**61] * count, far), good),
    ('dates', [datetime.date(2024, 2, 29)] * count, good),
    ('maps', pyarrow.array([[('a', 1)]] * count, maps), only_predicted),
    ('bytes', [b'\xff'] * count, only_predicted),
    ('durations', [datetime.timedelta(1)] * count, only_predicted),
  ):  # fmt: skip
    content = file({**columns, 'x': column})
    says = 'x is|x.parquet'
    yield File(f'Parquet with {name}', 'x.parquet', content, expects, says)
  texts = pyarrow.array([b'\xff\xfe'] * count)
  bad = pyarrow.Array.from_buffers(pyarrow.string(), count, texts.buffers())
  content, no = file({**columns, 'text': bad}), ('', NO, NO, NO)
  yield File('Parquet not in UTF-8', 'x.parquet', content, no, 'UTF-8|utf-8')


def _labels():
  """Yields tables whose labels or texts are missing, or are numbers."""
  rows = table() + 'one more,\n'
  hidden = NO, NO, YES, NO
  yield _csv('a label missing', rows, hidden, 'missing_labels')
  flags = dict.fromkeys(('prepare', 'evaluate'), ('--missing_labels=skip',))
  flags['train'] = ('--config.data.missing_labels=skip',)
  yield _csv('a label missing, skipped', rows, flags=flags)
  none = 'text,label\n' + 'a,\nb,\n' * 9
  yield _csv('no label at all', none, hidden, 'label|class')
  notes = table(header='text,label,note').replace(',good\n', ',good,\n')
  notes = notes.replace(',bad\n', ',bad,\n')
  empty = {'prepare': ('--skip_empty',)}
  yield _csv('a column empty everywhere', notes, flags=empty)
  for name, values in (
    ('numbers', [str(n) for n in range(12)]),
    ('fractions', [f'{n / 7:.3f}' for n in range(12)]),
    ('German decimals', [f'"{n},5"' for n in range(12)]),
    ('series', [f'{n} {n + 1} {n + 2}' for n in range(12)]),
    (
      'numbers with gaps',
      ['?' + ' ' * n if n % 3 else str(n) for n in range(12)],
    ),
  ):
    text = 'text,label\n' + ''.join(
      f'{x},{label}\n' for x, label in zip(values, LABELS, strict=True)
    )
    says = 'series of numbers'
    yield _csv(f'a text of {name}', text, (NO, YES, YES, READ), says)
    flags = {'train': ('--config.data.numbers_as_text=True',)}
    yield _csv(f'{name} as texts', text, (READ, '', '', ''), flags=flags)
  columns = 'x,y,label\n' + ''.join(f'{n},{n % 3},{n % 2}\n' for n in range(20))
  yield _csv('columns of numbers', columns, (NO, YES, NO, NO), 'numbers|column')


def _outputs(classifier):
  """Yields predictions written as tables."""
  write = base.file('x.csv', table(';').encode())
  for name, expects, says in (
    ('out.csv', YES, ''),
    ('OUT.CSV', YES, ''),
    ('out.tsv', NO, 'tsv'),  # a text has a line feed
    ('out.parquet', YES, ''),
    ('out.json', YES, ''),
    ('out.xlsx', NO, 'xlsx'),
    ('out.csv.gz', NO, 'gz'),
  ):
    yield commands.Attempt(
      f'predict to {name}',
      'predict',
      given.predicted(classifier, write, name),
      expects=expects,
      says=says,
      check=_table_is_whole,
    )


def _table_is_whole(folder, ended):
  """What was written is a table of its name's format with all texts."""
  import csv

  from pyarrow import parquet

  if ended.code:
    return None
  (path,) = (path for path in folder.iterdir() if path.stem.lower() == 'out')
  if path.suffix == '.parquet':
    texts = parquet.read_table(path).column('text').to_pylist()
  elif path.suffix.lower() == '.csv':
    lines = io.StringIO(path.read_text(encoding='utf-8'), newline='')
    texts = [row['text'] for row in csv.DictReader(lines, delimiter=';')]
  else:
    texts = [json.loads(x)['text'] for x in path.read_text().splitlines()]
  return None if texts == [*TEXTS] else ('lost', f'texts: {texts[:3]}')


def _texts(shared):
  """Yields texts for a language model to train on, evaluate and score."""
  mark = b'\xef\xbb\xbf'
  marked = mark + b'the state reads ' * 40
  said = [{'role': r, 'content': 'the gate'} for r in ('user', 'assistant')]
  messages = (json.dumps({'messages': said}).encode() + b'\n') * 9
  for name, file, content, expects, says in (
    ('a text with a byte order mark', 'x.txt', marked, YES, ''),
    ('a gzip file as .txt', 'x.txt', gzip.compress(marked), NO, 'gzip'),
    ('UTF-16 as .txt', 'x.txt', 'ab'.encode('utf-16') * 9, NO, 'UTF-16'),
    ('JSON lines with a mark', 'x.jsonl', mark + b'{"text": "a"}\n', YES, ''),
    ('JSON lines of messages', 'x.jsonl', messages, YES, ''),
  ):
    write = base.file(file, content)
    yield commands.Attempt(
      f'score: {name}',
      'score',
      _scored(shared.run, write, 'messages' in name),
      expects=expects,
      says=says,
    )
    if file.endswith('.txt'):
      yield commands.Attempt(
        f'train a language model: {name}',
        'train',
        _trained(shared, write),
        expects=expects,
        says=says,
      )
  write = base.file('x.jsonl', mark + messages)
  yield commands.Attempt(
    'train a dialogue on messages with a mark',
    'train',
    lambda folder: _train(shared, folder, write(folder), 'jsonl', 'dialogue'),
    expects=YES,
  )


def _scored(run, write, has_messages):
  flags = ['--column=messages'] if has_messages else []
  return lambda folder: [
    f'--workdir={run}',
    f'--input={write(folder)}',
    *flags,
  ]


def _trained(shared, write):
  return lambda folder: shared.train(
    folder / 'run',
    data__path=write(folder),
    data__split_by='position',
    train__steps=1,
  )
