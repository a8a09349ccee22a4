"""Calibration of a classifier's probabilities: one temperature, and its effect.

    p(class) = softmax(logits / T)

T minimizes the mean negative log-likelihood on a held-out split. That is convex
in 1 / T, so its derivative, the mean of E_p[logit] - logit of the label, has at
most one root. Source: Guo et al., "On Calibration of Modern Neural Networks",
2017.
"""

import csv
import dataclasses
import io
import math
import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from rnn_jax import errors
from rnn_jax import plots
from rnn_jax import tables
from rnn_jax.evaluation import classification
from rnn_jax.evaluation import reliability
from rnn_jax.inference import classify
from rnn_jax.inference import predict as predict_lib
from rnn_jax.parallel import hosts
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import calibration
from rnn_jax.system import files
from rnn_jax.training import evaluate

THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
ALL = '(all)'  # classes, in the table of thresholds
COLUMNS = 'threshold', 'class', 'precision', 'recall', 'f1', 'coverage'


def fit(logits_NxC: np.ndarray, labels_N: np.ndarray) -> float:
  """Returns the temperature of least mean negative log-likelihood.

  Raises:
    InputError: it isn't between calibration.MIN_TEMPERATURE and
      MAX_TEMPERATURE: every label has the
      largest logit, or the logits say nothing about the labels.
  """
  from scipy import optimize  # takes long to import

  z_NxC = np.float64(logits_NxC)
  z_NxC = z_NxC - z_NxC.max(-1, keepdims=True)
  label_N = z_NxC[np.arange(len(z_NxC)), labels_N]

  def slope(log_inverse):
    p_NxC = special.softmax(math.exp(log_inverse) * z_NxC, -1)
    return float(np.mean(np.sum(p_NxC * z_NxC, -1) - label_N))

  low, high = (
    -math.log(calibration.MAX_TEMPERATURE),
    -math.log(calibration.MIN_TEMPERATURE),
  )
  if slope(high) <= 0:
    raise errors.InputError(
      f'--calibrate: all of {len(z_NxC):,} examples are predicted right, and '
      'no temperature is too low: give more examples'
    )
  if slope(low) >= 0:
    raise errors.InputError(
      f'--calibrate: the model says nothing about the classes of '
      f'{len(z_NxC):,} examples, and no temperature is too high: train it '
      'longer, or give more examples'
    )
  fitted = math.exp(-optimize.brentq(slope, low, high, xtol=1e-10))
  return min(
    max(fitted, calibration.MIN_TEMPERATURE), calibration.MAX_TEMPERATURE
  )


def thresholds(
  confidence_N: np.ndarray,
  predicted_N: np.ndarray,
  labels_N: np.ndarray,
  classes: Sequence[str],
) -> list[dict[str, Any]]:
  """Returns rows of COLUMNS: what is right of what is at least so likely.

  Of a class, precision is the fraction of its predictions that are right,
  recall the fraction of its examples that are predicted, and coverage the
  fraction of all examples for which it is predicted. Of ALL, precision is the
  accuracy of what is answered, recall that of all examples. A precision of no
  prediction, and a recall of no example, is None.
  """
  rows = []
  names = [*enumerate(classes), (None, ALL)]
  for least in THRESHOLDS:
    given_N = confidence_N >= least
    for n, name in names:
      own_N = given_N if n is None else given_N & (predicted_N == n)
      true = len(labels_N) if n is None else np.sum(labels_N == n)
      hits, answered = np.sum(own_N & (predicted_N == labels_N)), np.sum(own_N)
      values = (
        _share(hits, answered),
        _share(hits, true),
        _share(2 * hits, answered + true),
        _share(answered, len(labels_N)),
      )
      rows.append(dict(zip(COLUMNS, (least, name, *values), strict=True)))
  return rows


def _share(part, whole):
  return float(part / whole) if whole else None


def check(task: Any, split: str, given: str) -> None:
  """Checks what is asked for, before anything is read.

  Args:
    task: section `task` of the run's config.
    split: --split.
    given: --input.

  Raises:
    InputError: the model has no probabilities, or the split isn't for this.
  """
  if not calibration.has_probabilities(task):
    errors.refuse(
      '--calibrate',
      True,
      f'task.name={task.name!r} has no probabilities of classes here: leave '
      'it out',
    )
  if not given and split not in ('', 'validation'):
    errors.refuse(
      '--split',
      split,
      'a temperature is fitted on the validation split: leave it out, or give '
      'held-out rows with --input',
    )


def calibrate_run(
  run: evaluate.Run, workdir: str | os.PathLike, split: str
) -> dict[str, Any]:
  """Fits a run's temperature on a split and writes the files.

  They are calibration.json, which predictions read from then on, and in
  evaluation/SPLIT/ another calibration.json with all that is returned,
  thresholds.csv and reliability.png.

  Returns:
    A JSON-ready dict: split, step, documents, temperature, accuracy, 'before'
    and 'after' with the scores of probabilities, and 'thresholds'. Of several
    processes the first one has it and writes; the others have {}.

  Raises:
    InputError: the split has no example, no temperature fits, or a folder has
      the file's name.
  """
  calibration.check_writable(workdir)
  params = hosts.gather_arrays(run.params)
  if not hosts.is_first():
    return {}
  run = dataclasses.replace(run, params=params)
  logits_NxC, labels_N = classification.logits(run, split)
  temperature = fit(logits_NxC, labels_N)
  sha256 = bundle_lib.digest(workdir, run.config, run.step)
  fitted = calibration.Calibration(
    temperature, run.step, sha256, split, len(labels_N)
  )
  row = _describe(fitted, logits_NxC, labels_N, run.config.data.classes)
  folder = pathlib.Path(workdir) / 'evaluation' / split
  folder.mkdir(parents=True, exist_ok=True)
  files.write_whole(folder / 'calibration.json', files.to_json(row, indent=1))
  files.write_whole(folder / 'thresholds.csv', _table(row['thresholds']))
  draw(logits_NxC, labels_N, fitted, folder / 'reliability.png')
  calibration.write(fitted, workdir)
  return row


def _describe(fitted, logits_NxC, labels_N, classes):
  temperature = fitted.temperature
  p_NxC = classify.calibrated(logits_NxC, temperature)
  predicted_N = logits_NxC.argmax(-1)
  # As launch.predict writes and compares them.
  best_N = np.array([predict_lib.shortest(p) for p in p_NxC.max(-1)])
  return {
    'split': fitted.split,
    'step': fitted.step,
    'documents': fitted.documents,
    'temperature': temperature,
    'accuracy': float(np.mean(predicted_N == labels_N)),
    'before': reliability.quality(logits_NxC, labels_N, 1.0),
    'after': reliability.quality(logits_NxC, labels_N, temperature),
    'thresholds': thresholds(best_N, predicted_N, labels_N, classes),
  }


def _table(rows):
  """Returns a table of thresholds as CSV."""
  text = io.StringIO()
  writer = csv.DictWriter(text, COLUMNS, lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  return text.getvalue()


def table(row: Mapping[str, Any]) -> str:
  """Returns lines with a calibration: scores, and thresholds of all classes."""
  before, after = row['before'], row['after']
  lines = [
    f'{row["split"]} split, step {row["step"]}: {row["documents"]:,} '
    f'documents, accuracy {row["accuracy"]:.4f}',
    f'  temperature    {row["temperature"]:.4f}',
  ]
  lines += [
    f'  {name:<14} {before[name]:.4f}   calibrated: {after[name]:.4f}'
    for name in reliability.SCORES
  ]
  answered = [each for each in row['thresholds'] if each['class'] == ALL]
  shares = [f'{name}:.3f' for name in COLUMNS[2:]]
  return '\n'.join([*lines, *tables.of(answered, ('threshold:.2f', *shares))])


def draw(
  logits_NxC: np.ndarray,
  labels_N: np.ndarray,
  fitted: calibration.Calibration,
  path: pathlib.Path,
) -> None:
  """Draws accuracy by confidence, before and after, and the confidences."""
  figure, panels = plots.panels((7.6, 4.6), 2, 2, height_ratios=(3, 1))
  hits_N = logits_NxC.argmax(-1) == labels_N
  middles = (np.arange(reliability.BINS) + 0.5) / reliability.BINS
  for n, (name, temperature) in enumerate(
    (('before', 1.0), ('after', fitted.temperature))
  ):
    p_NxC = special.softmax(np.float64(logits_NxC) / temperature, -1)
    bins = reliability.equal_width(p_NxC.max(-1), hits_N)
    filled = bins.counts > 0
    axes, below = panels[:, n]
    axes.plot((0, 1), (0, 1), '--', color='grey', linewidth=1)
    axes.plot(
      bins.confidence[filled],
      bins.accuracy[filled],
      'o-',
      color=plots.COLORS[n],
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel='accuracy')
    axes.set_title(f'{name}: T {temperature:.3g}, ECE {bins.error:.3f}')
    below.bar(
      middles, bins.counts, 0.9 / reliability.BINS, color=plots.COLORS[n]
    )
    below.set(xlim=(0, 1), xlabel='confidence', ylabel='predictions')
    plots.dress(axes)
    plots.dress(below, 'y')
  figure.suptitle(f'{fitted.split}, step {fitted.step}')
  plots.save(figure, path)
