"""Calibrations of strangers, weights of classes, and thresholds.

A calibration.json of each of FILES and VALUES is put into a classifier's run,
which then predicts; the run is calibrated on hostile rows; a classifier is
trained with weights that make no sense. What is refused names the file, key or
flag. What is predicted has the probabilities of the right temperature, or the
plain ones.
"""

import functools
import json
import math
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.faults import base
from tests.faults import commands
from tests.faults import given

TEXTS = ('the gate reads', 'a key', 'the state writes a key and forgets')
ROWS = ''.join(json.dumps({'text': text}) + '\n' for text in TEXTS).encode()
TIMEOUT = 60.0  # seconds: what is well compiles programs
TRAINS = 180.0  # seconds: a training on a busy machine
TEMPERATURE = 2.5
DAMAGED = r'calibration\.json'

Defect = tuple[str, str] | None  # (kind, words)
Values = dict[str, Any]

VALUES: dict[str, Values] = {  # of calibration.json, sealed
  'a temperature of 0': {'temperature': 0.0},
  'a temperature below 0': {'temperature': -1.5},
  'the smallest temperature': {'temperature': 5e-324},
  'the largest temperature': {'temperature': 1.7e308},
  'a temperature above the bound': {'temperature': 100.1},
  'a whole temperature': {'temperature': 2},
  'a temperature of 2^64': {'temperature': 2**64},
  'a temperature as text': {'temperature': '2.5'},
  'a temperature that is true': {'temperature': True},
  'no temperature': {'temperature': None},
  'a list of temperatures': {'temperature': [1.0, 2.0]},
  'a step below 0': {'step': -1},
  'a step of 10^400': {'step': 10**400},
  'a step as text': {'step': '0'},
  'a step of 0.5': {'step': 0.5},
  'a short digest': {'sha256': 'ab'},
  'a digest that is a path': {'sha256': '../../../etc/passwd'},
  'a digest of 10^4 letters': {'sha256': 'a' * 10**4},
  'no digest': {'sha256': None},
  'a split of 10^4 letters': {'split': 'x' * 10**4},
  'a split that is a number': {'split': 3},
  'no document': {'documents': 0},
  'documents as text': {'documents': 'all'},
  'another key': {'module': 'theirs.payload'},
}
OTHERS: dict[str, Values] = {  # of another checkpoint: the plain ones, warned
  'of another step': {'step': 7},
  'of a step of 2^48': {'step': 2**48},
  'of another checkpoint': {'sha256': 'a' * 64},
}
FILES: dict[str, bytes] = {
  'empty': b'',
  'cut': b'{"temperature": 2.',
  'zeros': bytes(512),
  'not text': bytes(range(256)),
  'NaN': b'{"temperature": NaN, "step": 0}',
  'infinity': b'{"temperature": 1e999, "step": 0}',
  'a number': b'2.5',
  'null': b'null',
  'a list': b'[2.5]',
  'deep': b'[' * 60_000,
  'a number of 60,000 digits': b'9' * 60_000,
  'a string': b'"temperature"',
  'keys twice': b'{"temperature": 1.0, "temperature": 2.0}',
  'a byte-order mark': b'\xef\xbb\xbf{}',
  'more than 64 KiB': b'{' + b' ' * 2**17 + b'}',
}
WEIGHTS = {  # of two classes, and what the line names
  'even': 'class_weights',
  'Balanced': 'class_weights',
  '""': 'class_weights',
  '()': 'class_weights',
  '(1.0,)': 'class_weights',
  '(1.0, 2.0, 3.0)': 'class_weights',
  '(0.0, 1.0)': 'class_weights',
  '(-1.0, 1.0)': 'class_weights',
  '(1e-30, 1.0)': 'class_weights',
  '(1e30, 1.0)': 'class_weights',
  '(1e999, 1.0)': 'class_weights',
  '(nan, 1.0)': 'class_weights',
  '(1.0, 1.0)': 'class_weights',
  '(True, 2.0)': 'class_weights',
  "('1', '2')": 'class_weights',
  '((1, 2), 3)': 'class_weights',
  '(1, None)': 'class_weights',
  '{1: 2}': 'class_weights',
  '1.5': 'class_weights',
  'None': 'class_weights',
  '__import__("os").abort()': 'class_weights',
  '(' * 5000: 'class_weights',
}
THRESHOLDS = ('-0.1', '1.1', 'nan', 'inf', '-inf', '1e999', 'x', '', '0,5')
LABELLED = b''.join(
  b'{"text": "%s", "label": "%s"}\n' % (text.encode(), label)
  for text in TEXTS
  for label in (b'bad', b'good')
)


def attempts(shared: base.Base) -> Iterator[commands.Attempt]:
  """Predicts, calibrates and trains, with what makes no sense."""
  run = given.classifier_of(shared)
  for name, values in VALUES.items():
    write = functools.partial(_sealed, run, values)
    yield _refused(run, f'a calibration: {name}', write)
  for name, content in FILES.items():
    write = functools.partial(_bytes, content)
    yield _refused(run, f'a calibration: {name}', write)
  for name, damage in PLACES.items():
    yield _refused(run, f'a calibration that is {name}', damage)
  yield _refused(run, 'a calibration with a flipped digit', _flipped(run))
  for name, values in OTHERS.items():
    write = functools.partial(_sealed, run, values)
    yield _predicted(run, f'a calibration {name}', write, 1.0, 'fitted on')
  for temperature in (0.01, TEMPERATURE, 100.0):
    write = functools.partial(_sealed, run, {'temperature': temperature})
    yield _predicted(run, f'T = {temperature}', write, temperature)
  yield from _flags(run, shared)
  yield from _calibrations(run)
  yield from _trainings(shared)


def _refused(run, name, write):
  return commands.Attempt(
    name, 'predict', _prediction(run, write), says=DAMAGED, timeout=TIMEOUT
  )


def _predicted(run, name, write, temperature, warning=''):
  return commands.Attempt(
    name,
    'predict',
    _prediction(run, write),
    expects='success',
    check=functools.partial(_as_calibrated, run, temperature, warning),
    timeout=TIMEOUT,
  )


def _prediction(run, write: Callable[[pathlib.Path], object], *flags):
  def arguments(folder):
    copied = base.copy(run, folder)
    write(copied)
    return [*_input(folder, copied, ROWS), *flags]

  return arguments


def _input(folder, run, content):
  path = folder / 'x.jsonl'
  path.write_bytes(content)
  return f'--workdir={run}', f'--input={path}'


def _as_calibrated(run, temperature, warning, folder, ended) -> Defect:
  """Compares probabilities with those of a temperature, from the logits."""
  del folder
  rows = [json.loads(line) for line in ended.out.splitlines()]
  p_NxC = np.array([[*row['probabilities'].values()] for row in rows])
  scaled_NxC = _logits(run) / temperature
  wanted_NxC = np.exp(scaled_NxC - scaled_NxC.max(-1, keepdims=True))
  wanted_NxC /= wanted_NxC.sum(-1, keepdims=True)
  if p_NxC.shape != wanted_NxC.shape or not np.allclose(
    p_NxC, wanted_NxC, atol=1e-5
  ):
    return 'silent', f'other probabilities: {p_NxC.tolist()}'
  if warning not in ended.err:
    return 'silent', f'no warning: {ended.err[-200:]}'
  return None


@functools.cache
def _logits(run):
  import rnn_jax

  rows = rnn_jax.load(run).predict(TEXTS)
  p_NxC = np.array([[*row.probabilities.values()] for row in rows])
  return np.log(p_NxC)


def _seal_of(run):
  from rnn_jax import config as config_lib
  from rnn_jax.runs import bundle as bundle_lib
  from rnn_jax.runs import workdir as workdir_lib

  config = config_lib.parse(workdir_lib.load_config(run))
  return bundle_lib.digest(run, config, 0)


def _sealed(run, values, folder):
  """Writes a calibration with these values, whose seal is right."""
  from rnn_jax.runs import calibration

  whole = {
    'temperature': TEMPERATURE,
    'step': 0,
    'sha256': _seal_of(run),
    'split': 'validation',
    'documents': 9,
  } | values
  text = json.dumps(whole | {'seal': calibration.seal(whole)})
  (folder / 'calibration.json').write_text(text)


def _bytes(content, folder):
  (folder / 'calibration.json').write_bytes(content)


def _flipped(run):
  def write(folder):
    _sealed(run, {}, folder)
    path = folder / 'calibration.json'
    path.write_text(path.read_text().replace('2.5', '3.5'))

  return write


def _sparse(folder):
  with open(folder / 'calibration.json', 'wb') as file:
    file.truncate(3 * 2**30)


PLACES: dict[str, Callable[[pathlib.Path], object]] = {
  'a folder': lambda run: (run / 'calibration.json').mkdir(),
  'a pipe': lambda run: os.mkfifo(run / 'calibration.json'),
  'a link to /dev/zero': lambda run: os.symlink(
    '/dev/zero', run / 'calibration.json'
  ),
  'a link to itself': lambda run: os.symlink(
    'calibration.json', run / 'calibration.json'
  ),
  'a link to nothing': lambda run: os.symlink(
    'nothing', run / 'calibration.json'
  ),
  'sparse, of 3 GiB': _sparse,
}


def _flags(run, shared):
  """Thresholds, and flags that --calibrate doesn't go with."""
  for value in THRESHOLDS:
    yield commands.Attempt(
      f'--threshold={value}',
      'predict',
      _prediction(run, lambda _: None, f'--threshold={value}'),
      says='threshold',
    )
  for value in ('1.0', '0.5', '1e-300'):
    yield commands.Attempt(
      f'--threshold={value}',
      'predict',
      _prediction(run, lambda _: None, f'--threshold={value}'),
      expects='success',
      check=functools.partial(_abstains, float(value)),
      timeout=TIMEOUT,
    )
  for flags, says in (
    (('--split=test',), 'split'),
    (('--split=train',), 'split'),
    (('--split=dev',), 'split'),
    (('--limit=3',), 'limit'),
    (('--limit=-1',), 'limit'),
    (('--bertscore=x',), 'bertscore'),
    (('--calibrate=maybe',), 'calibrate'),
  ):
    yield commands.Attempt(
      f'--calibrate {flags[0]}',
      'evaluate',
      [f'--workdir={run}', '--calibrate', *flags],
      says=says,
    )
  yield commands.Attempt(
    '--calibrate of a run that writes text',
    'evaluate',
    [f'--workdir={shared.run}', '--calibrate'],
    says='task.name',
  )


def _abstains(least, folder, ended) -> Defect:
  del folder
  rows = [json.loads(line) for line in ended.out.splitlines()]
  for row in rows:
    likely = max(row['probabilities'].values()) >= least
    if (row['label'] is not None) != likely:
      return 'silent', f'a label where there is none, or none: {row}'
  return None if len(rows) == len(TEXTS) else ('lost', f'{len(rows)} rows')


def _calibrations(run):
  """Calibrates on hostile rows."""
  one = b'{"text": "the gate reads", "label": "good"}\n'
  for name, content, expects in (
    ('both labels of each text', LABELLED, 'either'),
    ('one row', one, 'either'),
    ('one class', one * 40, 'either'),
    ('empty', b'', 'refusal'),
    ('no label', ROWS, 'refusal'),
    ('a label that is no class', one.replace(b'good', b'fair'), 'refusal'),
    ('no JSON', b'{"text": ', 'refusal'),
  ):

    def arguments(folder, content=content):
      copied = base.copy(run, folder)
      return [*_input(folder, copied, content), '--calibrate', '--json']

    yield commands.Attempt(
      f'calibrate on: {name}',
      'evaluate',
      arguments,
      expects=expects,
      says=r'--calibrate|x\.jsonl',
      check=_kept_if_fitted,
      timeout=TIMEOUT,
    )


def _kept_if_fitted(folder, ended) -> Defect:
  """A temperature is finite and in the run, or there is none."""
  path = folder / 'run' / 'calibration.json'
  if ended.code:
    return ('silent', 'kept though refused') if path.exists() else None
  T = json.loads(ended.out)['temperature']
  if not math.isfinite(T) or json.loads(path.read_text())['temperature'] != T:
    return 'silent', f'temperature {T}'
  return None


def _trainings(shared):
  """Trains a classifier with weights of its classes."""
  rows = shared.folder / 'weighted.jsonl'
  rows.write_bytes(LABELLED * 9)
  changed = {
    'data__source': 'jsonl',
    'data__path': rows,
    'data__classes': "('bad', 'good')",
    'task__name': 'classification',
    'model__layers': 1,
  }

  def train(folder, weights, **more):
    options = changed | more | {'task__class_weights': weights}
    return shared.train(folder / 'run', **options)

  for weights, says in WEIGHTS.items():
    yield commands.Attempt(
      f'weights {weights:.40}',
      'train',
      functools.partial(train, weights=weights),
      says=says,
    )
  for name, more in (
    ('of a model that writes the class', {'task__answer': 'word'}),
    ('of a language model', {'task__name': 'language_modeling'}),
    ('of dialogues', {'task__name': 'dialogue'}),
  ):
    yield commands.Attempt(
      f'weights {name}',
      'train',
      functools.partial(train, weights='balanced', **more),
      says='class_weights',
    )
  for weights in ('balanced', '(0.000001, 1000000.0)'):
    yield commands.Attempt(
      f'weights {weights}',
      'train',
      functools.partial(train, weights=weights),
      expects='success',
      check=_finite_losses,
      timeout=TRAINS,
    )


def _finite_losses(folder, ended) -> Defect:
  del ended
  text = (folder / 'run' / 'metrics.jsonl').read_text()
  losses = [json.loads(line).get('loss') for line in text.splitlines()]
  if not losses or None in losses:
    return 'silent', f'losses: {losses}'
  return None
