"""Files that are given to a trained run: to predict, or to evaluate on.

Each of FILES goes to launch.predict and to launch.evaluate --input, of a
classifier of texts; some also go to a run that writes text.
"""

import json
import os
import pathlib
import struct
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from tests.faults import base
from tests.faults import commands
from tests.faults import strangers

CLASSES = ('bad', 'good')
ROW = b'{"text": "the gate reads", "label": "good"}\n'
TABLE = b'text,label\n' + b'the gate reads,good\n' * 9
LARGE = 30_000_000  # bytes of a line or a field
SAYS = 'x[.]|input|run|text|label|class|row|column|file|folder|line'


def rows(shared: base.Base) -> Iterator[commands.Attempt]:
  """Predicts, and evaluates on, hostile files."""
  classifier = classifier_of(shared)
  for name, write, predicts, evaluates in _files():
    yield commands.Attempt(
      f'predict: {name}',
      'predict',
      predicted(classifier, write),
      expects=predicts,
      says=SAYS,
      check=_whole_lines,
    )
    yield commands.Attempt(
      f'evaluate: {name}',
      'evaluate',
      evaluated(classifier, write),
      expects=evaluates,
      says=SAYS,
      check=finite,
    )
  for name, write in _texts():
    yield commands.Attempt(
      f'evaluate a language model: {name}',
      'evaluate',
      evaluated(shared.run, write),
      expects='either',
      says=SAYS,
      check=finite,
    )
  write = base.file('x.jsonl', ROW * 9)
  yield commands.Attempt(
    'predict with a run that writes text',
    'predict',
    predicted(shared.run, write),
    says='task.name',
  )
  for name, output, says in (
    ('a file that exists', 'x.jsonl', 'exists already'),
    ('a folder', '', 'exists already'),
    ('in a folder that is missing', 'none/x.jsonl', 'No such file'),
    ('in a file', 'x.jsonl/y.jsonl', 'Not a directory'),
    ('a name of 999 letters', 'x' * 999, 'too long'),
  ):
    yield commands.Attempt(
      f'predict: the output is {name}',
      'predict',
      predicted(classifier, write, output),
      says=says,
    )


def classifier_of(shared: base.Base) -> pathlib.Path:
  """Writes the run of a classifier with random parameters, once."""
  import jax
  import numpy as np

  from rnn_jax import config as config_lib
  from rnn_jax.data.text import tokenizer as tokenizer_lib
  from rnn_jax.runs import bundle as bundle_lib

  folder = shared.folder / 'classifier'
  if folder.exists():
    return folder
  raw = config_lib.default()
  changed: dict[str, Any] = base.SMALL | {
    'data.source': 'jsonl',
    'data.path': 'gone.jsonl',
    'data.classes': CLASSES,
    'task.name': 'classification',
  }
  config_lib.override(raw, changed)
  config, tokenizer = config_lib.parse(raw), tokenizer_lib.Bytes()
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32),
    bundle_lib.like(config, tokenizer),
  )
  bundle_lib.write(bundle_lib.make(config, tokenizer, params), folder)
  return folder


def predicted(
  run: pathlib.Path,
  write: Callable[[pathlib.Path], object],
  output: str = 'out.jsonl',
  flags: Sequence[str] = (),
) -> base.Arguments:
  """Returns what makes the arguments to predict what `write` wrote."""
  return lambda folder: [
    f'--workdir={run}',
    f'--input={write(folder)}',
    f'--output={folder / output}',
    *flags,
  ]


def evaluated(
  run: pathlib.Path,
  write: Callable[[pathlib.Path], object],
  flags: Sequence[str] = (),
) -> base.Arguments:
  """Returns what makes the arguments to evaluate on what `write` wrote."""
  # Scores are written beside the checkpoints: each attempt has its own.
  return lambda folder: [
    f'--workdir={base.copy(run, folder)}',
    f'--input={write(folder)}',
    '--json',
    *flags,
  ]


def _whole_lines(folder, ended):
  """What was predicted before a bad row is there, in whole lines."""
  path = folder / 'out.jsonl'
  text = path.read_text() if path.exists() else ''
  if ended.code == 0 and not text:
    return 'lost', 'no row was written'
  try:
    predicted = [json.loads(line) for line in text.splitlines()]
  except ValueError as error:
    return 'lost', f'a line that is not whole: {error}'
  if text and not text.endswith('\n'):
    return 'lost', 'the last line has no end'
  lacks = [row for row in predicted if row['label'] not in CLASSES]
  return ('silent', f'a row without a class: {lacks[0]}') if lacks else None


def finite(folder: pathlib.Path, ended: commands.Ended) -> commands.Defect:
  """Checks that the scores of what was evaluated are numbers."""
  del folder
  if ended.code:
    return None
  scores = json.loads(ended.out)
  good = isinstance(scores['loss'], float) and abs(scores['loss']) < 1e9
  return None if good else ('silent', f'loss: {scores["loss"]}')


def _files():
  """Yields (name, write(folder) -> path, what predict and evaluate should do).

  Predict may have written rows before it meets a bad one.
  """
  for name, file, content, predicts, evaluates in (*_jsonl(), *_tables()):
    yield name, base.file(file, content), predicts, evaluates
  for name, write in (
    ('a file that is missing', lambda folder: folder / 'none.jsonl'),
    ('a folder', lambda folder: folder),
    ('a folder that holds itself', strangers.loop),
    ('a pipe that nobody writes', strangers.pipe),
    ('a device of zeros', lambda folder: '/dev/zero'),
    ('an empty name', lambda folder: ''),
    ('a prepared dataset that is missing', lambda folder: 'prepared:none'),
    ('a link to itself', _circle),
  ):
    yield name, write, 'refusal', 'refusal'


def _circle(folder):
  path = folder / 'x.jsonl'
  path.symlink_to(path)
  return path


def _jsonl():
  """Yields (name, file, content, what predict and evaluate should do)."""
  no, either, yes = 'refusal', 'either', 'success'
  deep, first = strangers.DEEP.encode(), ROW * 9

  def of(text=b'"a"', label=b'"good"'):
    return b'{"text": %s, "label": %s}\n' % (text, label)

  def more(value):
    return b'{"text": "a", "label": "good", "x": %s}\n' % value

  closed = deep + b']' * len(deep)
  for name, content, predicts, evaluates in (
    ('that are well', first, yes, yes),
    ('of an empty file', b'', no, no),
    ('of empty rows', b'\n' * 100, no, no),
    ('cut short', first + b'{"text": "a', no, no),
    ('nested 100,000 deep', deep + b'\n', no, no),
    ('nested deep in a row', first + closed + b'\n', no, no),
    ('nested deep in a text', first + of(closed), no, no),
    ('nested deep in another column', first + more(closed), no, no),
    (
      'with objects in another column',
      first + more(b'{"y": [{"z": 1}]}'),
      either,
      either,
    ),
    ('whose text is an object', first + of(b'{"a": "b"}'), no, no),
    ('whose text is a list', first + of(b'["a", "b"]'), yes, yes),
    ('whose text is a list of numbers', first + of(b'[1, 2]'), no, no),
    ('whose text is a number', first + of(b'3'), no, no),
    ('whose text is null', first + of(b'null'), no, no),
    ('whose text is NaN', first + of(b'NaN'), no, no),
    ('whose text is empty', first + of(b'""'), either, no),
    ('whose text is of NULs', first + of(b'"\\u0000\\u0000"'), yes, yes),
    ('with a lone surrogate', first + of(b'"\\ud800"'), no, no),
    ('without a column of text', b'{"label": "good"}\n' * 9, no, no),
    ('that lose their column of text', first + b'{"x": 1}\n', no, no),
    ('with two texts in a row', b'{"text": "a", "text": "b"}\n', either, no),
    ('that are numbers', b'3\n' * 9, no, no),
    ('in UTF-16', first.decode().encode('utf-16'), no, no),
    ('in Latin-1', first + of('"café"'.encode('latin-1')), no, no),
    ('with a byte order mark', b'\xef\xbb\xbf' + first, yes, yes),
    (
      'with a row of 30 MB',
      first + of(b'"' + b'a' * LARGE + b'"'),
      either,
      either,
    ),
    ('with a line of 30 MB and no end', first + b'a' * LARGE, no, no),
    ('without a class', b'{"text": "a"}\n' * 9, yes, no),
    ('of an unknown class', first + of(label=b'"ugly"'), yes, no),
    ('of a class out of range', first + of(label=b'7'), yes, no),
    ('of a class below 0', first + of(label=b'-1'), yes, no),
    ('of a class that is a fraction', first + of(label=b'0.5'), yes, no),
    ('of a class of 400 digits', first + of(label=b'9' * 400), yes, no),
    ('of a class that is null', first + of(label=b'null'), yes, no),
    ('of a class that is a list', first + of(label=b'["good"]'), yes, no),
    ('of a class of NaN', first + of(label=b'NaN'), no, no),
  ):
    yield f'JSON lines {name}', 'x.jsonl', content, predicts, evaluates


def _tables():
  """Yields (name, file, content, what predict and evaluate should do)."""
  no, either, yes = 'refusal', 'either', 'success'
  yield from (
    ('a CSV that is well', 'x.csv', TABLE, yes, yes),
    ('an empty CSV', 'x.csv', b'', no, no),
    ('a CSV of a header only', 'x.csv', b'text,label\n', no, no),
    ('a CSV with NULs', 'x.csv', TABLE + b'\0,\0\n' * 9, either, either),
    (
      'a CSV with a field of 30 MB',
      'x.csv',
      TABLE + b'a' * LARGE + b',good\n',
      either,
      either,
    ),
    ('a CSV whose quotes have no end', 'x.csv', TABLE + b'"abc\n' * 9, no, no),
    ('a CSV with a shorter row', 'x.csv', TABLE + b'a\n', no, no),
    ('a CSV with a longer row', 'x.csv', TABLE + b'a,good,b\n', no, no),
    ('a CSV with two columns of a name', 'x.csv', b'text,text\na,b\n', no, no),
    ('a CSV without a column of text', 'x.csv', b'a,b\n1,2\n', no, no),
    ('a CSV that is no UTF-8', 'x.csv', TABLE + b'\xff\xfe,good\n', no, no),
    ('a CSV in UTF-16', 'x.csv', TABLE.decode().encode('utf-16'), no, no),
    ('a CSV of an unknown class', 'x.csv', TABLE + b'a,ugly\n', yes, no),
    ('a TSV of commas', 'x.tsv', TABLE, no, no),
    ('a parquet of rubbish', 'x.parquet', _parquet(os.urandom(200)), no, no),
    ('a parquet of its magic only', 'x.parquet', b'PAR1PAR1', no, no),
    (
      'a parquet with a footer of 4 GB',
      'x.parquet',
      _parquet(b'\xff' * 4),
      no,
      no,
    ),
    ('an encrypted zip', 'x.zip', strangers.encrypted_zip(), no, no),
    ('an encrypted zip as CSV', 'x.csv', strangers.encrypted_zip(), no, no),
    ('a gzip as JSON lines', 'x.jsonl', b'\x1f\x8b' + bytes(50), no, no),
    ('a text', 'x.txt', b'the gate reads\n' * 9, yes, no),
    ('a text of NULs', 'x.txt', bytes(500), either, no),
    ('a text that is no UTF-8', 'x.txt', b'\xff\xfe\xfd' * 100, no, no),
    ('a name without an end', 'x', ROW * 9, no, no),
    ('a name of another format', 'x.pickle', ROW * 9, no, no),
  )


def _parquet(content):
  return b'PAR1' + content + struct.pack('<I', len(content)) + b'PAR1'


def _texts():
  """Yields (name, write(folder) -> path)."""
  for name, content in (
    ('a text that is well', b'the state reads ' * 40),
    ('an empty text', b''),
    ('a text of one byte', b'a'),
    ('a text of NULs', bytes(500)),
    ('a text that is no UTF-8', b'\xff\xfe\xfd' * 100),
    ('a text of 300 kB in one line', b'a' * 300_000),
  ):
    yield name, base.file('x.txt', content)
  yield 'JSON lines cut short', base.file('x.jsonl', ROW * 9 + b'{"te')
  yield 'a glob of nothing', lambda folder: folder / '*.txt'
