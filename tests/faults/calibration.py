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
TRAINS = 180.0  # seconds: a training on a busy machine
TEMPERATURE = 2.5
DAMAGED = r'calibration\.json'

Defect = commands.Defect
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
WEIGHTS = (  # of two classes
  *('even', 'Balanced', '""', '()', '(1.0,)', '(1.0, 2.0, 3.0)', '(0.0, 1.0)'),
  *('(-1.0, 1.0)', '(1e-30, 1.0)', '(1e30, 1.0)', '(1e999, 1.0)'),
  *('(nan, 1.0)', '(1.0, 1.0)', '(True, 2.0)', "('1', '2')", '((1, 2), 3)'),
  *('(1, None)', '{1: 2}', '1.5', 'None', '__import__("os").abort()'),
  '(' * 5000,
)
ABSTAINS = ('1.0', '0.5', '1e-300')
THRESHOLDS = ('-0.1', '1.1', 'nan', 'inf', '-inf', '1e999', 'x', '', '0,5')
LABELLED = b''.join(
  b'{"text": "%s", "label": "%s"}\n' % (text.encode(), label)
  for text in TEXTS
  for label in (b'bad', b'good')
)


def attempts(shared: base.Base) -> Iterator[commands.Attempt]:
  """Predicts, calibrates and trains, with what makes no sense."""
  run = given.classifier_of(shared)
  refused = {
    **{f': {name}': _sealed(run, values) for name, values in VALUES.items()},
    **{f': {name}': _bytes(content) for name, content in FILES.items()},
    **{f' that is {name}': damage for name, damage in PLACES.items()},
    ' with a flipped digit': _flipped(run),
  }
  for name, write in refused.items():
    yield commands.Attempt(
      f'a calibration{name}', 'predict', _prediction(run, write), says=DAMAGED
    )
  for name, values, temperature, warning in (
    *((f'a calibration {x}', values, 1.0, 'fitted on')
      for x, values in OTHERS.items()),
    *((f'T = {T}', {'temperature': T}, T, '')
      for T in (0.01, TEMPERATURE, 100.0)),
  ):  # fmt: skip
    yield commands.Attempt(
      name,
      'predict',
      _prediction(run, _sealed(run, values)),
      expects='success',
      check=functools.partial(_as_calibrated, run, temperature, warning),
    )
  yield from _flags(run, shared)
  yield from _calibrations(run)
  yield from _trainings(shared)


def _prediction(run, write: Callable[[pathlib.Path], object], *flags):
  rows = base.file('x.jsonl', ROWS)
  return base.changed(
    run,
    write,
    lambda copied: [
      f'--workdir={copied}',
      f'--input={rows(copied.parent)}',
      *flags,
    ],
  )


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


def _sealed(run, values):
  """Returns what writes a calibration of these values, with a right seal."""
  from rnn_jax.runs import calibration

  def write(folder):
    whole = {
      'temperature': TEMPERATURE,
      'step': 0,
      'sha256': _seal_of(run),
      'split': 'validation',
      'documents': 9,
    } | values
    text = json.dumps(whole | {'seal': calibration.seal(whole)})
    (folder / 'calibration.json').write_text(text)

  return write


def _bytes(content):
  return lambda folder: (folder / 'calibration.json').write_bytes(content)


def _flipped(run):
  def write(folder):
    _sealed(run, {})(folder)
    path = folder / 'calibration.json'
    path.write_text(path.read_text().replace('2.5', '3.5'))

  return write


def _sparse(path):
  with open(path, 'wb') as file:
    file.truncate(3 * 2**30)


def _at(make):
  return lambda run: make(run / 'calibration.json')


PLACES: dict[str, Callable[[pathlib.Path], object]] = {
  'a folder': _at(pathlib.Path.mkdir),
  'a pipe': _at(os.mkfifo),
  'a link to /dev/zero': _at(lambda path: path.symlink_to('/dev/zero')),
  'a link to itself': _at(lambda path: path.symlink_to('calibration.json')),
  'a link to nothing': _at(lambda path: path.symlink_to('nothing')),
  'sparse, of 3 GiB': _at(_sparse),
}


def _flags(run, shared):
  """Thresholds, and flags that --calibrate doesn't go with."""
  for value in (*THRESHOLDS, *ABSTAINS):
    abstains = value in ABSTAINS
    yield commands.Attempt(
      f'--threshold={value}',
      'predict',
      _prediction(run, lambda _: None, f'--threshold={value}'),
      expects='success' if abstains else 'refusal',
      says='threshold',
      check=functools.partial(_abstains, float(value)) if abstains else None,
    )
  for flag, says in (
    ('--split=test', 'split'),
    ('--split=train', 'split'),
    ('--split=dev', 'split'),
    ('--limit=3', 'limit'),
    ('--limit=-1', 'limit'),
    ('--bertscore=x', 'bertscore'),
    ('--calibrate=maybe', 'calibrate'),
  ):
    yield commands.Attempt(
      f'--calibrate {flag}',
      'evaluate',
      [f'--workdir={run}', '--calibrate', flag],
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
    yield commands.Attempt(
      f'calibrate on: {name}',
      'evaluate',
      given.evaluated(run, base.file('x.jsonl', content), ['--calibrate']),
      expects=expects,
      says=r'--calibrate|x\.jsonl',
      check=_kept_if_fitted,
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

  own = (('of a model that writes the class', 'task__answer', 'word'),
         ('of a language model', 'task__name', 'language_modeling'),
         ('of dialogues', 'task__name', 'dialogue'))  # fmt: skip
  for name, weights, more in (
    *((f'{weights:.40}', weights, {}) for weights in WEIGHTS),
    *((name, 'balanced', {key: value}) for name, key, value in own),
  ):
    yield commands.Attempt(
      f'weights {name}',
      'train',
      _trained(shared, changed | more | {'task__class_weights': weights}),
      says='class_weights',
    )
  for weights in ('balanced', '(0.000001, 1000000.0)'):
    yield commands.Attempt(
      f'weights {weights}',
      'train',
      _trained(shared, changed | {'task__class_weights': weights}),
      expects='success',
      check=_finite_losses,
      timeout=TRAINS,
    )


def _trained(shared, options):
  return lambda folder: shared.train(folder / 'run', **options)


def _finite_losses(folder, ended) -> Defect:
  del ended
  text = (folder / 'run' / 'metrics.jsonl').read_text()
  losses = [json.loads(line).get('loss') for line in text.splitlines()]
  if not losses or None in losses:
    return 'silent', f'losses: {losses}'
  return None
