"""Evaluates a run on a split: scores, predictions and figures.

Writes `workdir`/evaluation/<split>/: predictions.jsonl (a row per prediction,
written before they are scored, for tasks that predict), scores.json, scores.png
with 95 % intervals and, for classification, confusion_matrix.png.
"""

import dataclasses
import importlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax import plots
from rnn_jax.evaluation import bertscore as bertscore_lib
from rnn_jax.evaluation import intervals
from rnn_jax.parallel import hosts
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files
from rnn_jax.training import evaluate

PEER = '#bbbbbb'
SHORT = {'balanced_accuracy': 'balanced acc.'}
NAMES = {
  'bits_per_byte': 'this model',
  'gzip': 'gzip -9',
  'xz': 'xz -9e',
  'bertscore_precision': 'BERTScore P',
  'bertscore_recall': 'BERTScore R',
  'bertscore_f1': 'BERTScore F1',
  'balanced_accuracy': 'balanced accuracy',
  'sentence_bleu': 'sentence BLEU',
}
MACRO = 'macro_f1', 'balanced_accuracy'
SHARES = (
  'accuracy',
  'exact',
  *MACRO,
  'bleu',
  'sentence_bleu',
  'rouge1',
  'rouge2',
  'rougeL',
  *bertscore_lib.NAMES,
  'distinct1',
  'distinct2',
  'valid',
)


def evaluate_run(
  run: evaluate.Run,
  workdir: str | os.PathLike,
  split: str,
  limit: int = 0,
  bertscore: str = '',
) -> dict[str, Any]:
  """Evaluates a run on a split and writes the files.

  Args:
    run: the run.
    workdir: its folder.
    split: 'train', 'validation' or 'test', or '', the test split if any; or
      the name of another one that the run has.
    limit: predicts only the first so many documents; 0: all.
    bertscore: a model's folder for BERTScore, of dialogue; '': none.

  Returns:
    The scores, JSON-ready. Of several processes the first one has all of them
    and writes the files; the others have what is computed together.

  Raises:
    InputError: there is no such split, it is empty, BERTScore lacks something,
      or the run's calibration is damaged; before anything is predicted.
  """
  split = run.split(split)
  temperature = bundle_lib.temperature_of(workdir, run.config, run.step)
  run = dataclasses.replace(run, temperature=temperature)
  sums = run.batch_sums(split)
  row = evaluate.describe(run, split, sums)
  run = dataclasses.replace(run, params=hosts.gather_arrays(run.params))
  if not hosts.is_first():
    return row
  predictor = _predictor(run.config.task)
  scorer = _scorer(run.config.task, predictor, bertscore)
  folder = pathlib.Path(workdir) / 'evaluation' / split
  folder.mkdir(parents=True, exist_ok=True)
  edges = intervals.of_batches(run.programs.task, sums)
  row['intervals'] = {n: edge for n, edge in edges.items() if n in row}
  if temperature is not None:
    row['temperature'] = temperature
  predictions = predictor.predict(run, split, limit) if predictor else []
  if predictions:
    # Before they are scored: they are what took the time.
    lines = (files.to_json(p, ensure_ascii=False) + '\n' for p in predictions)
    files.write_whole(folder / 'predictions.jsonl', ''.join(lines))
    scores = predictor.score_run(run, predictions, scorer)
    # Intervals over predictions replace those over batches.
    edges = row['intervals'] | scores['intervals']
    row |= scores | {'intervals': edges, 'predictions': len(predictions)}
  draw = getattr(predictor, 'draw_scores', draw_scores)
  draw(row, folder / 'scores.png')
  if 'confusion_matrix' in row:
    draw_confusion_matrix(row, folder / 'confusion_matrix.png')
  files.write_whole(folder / 'scores.json', files.to_json(row, indent=1) + '\n')
  return row


def table(row: Mapping[str, Any]) -> str:
  """Returns lines with the scores, to follow those of the loss.

  Those of single classes are only in scores.json. Where classes are uneven,
  those that count each class alike are first. Forecasts have a table of their
  own.
  """
  if 'regressors' in row:
    from rnn_jax.evaluation import regression

    return regression.table(row['regressors'])
  if 'forecasters' in row:
    from rnn_jax.evaluation.forecasting import comparison

    return comparison.table(row['forecasters'])
  edges, lines = row.get('intervals', {}), []
  if row.get('uneven'):
    lines.append(f'  macro scores first: {row["uneven"]}')
    edges = {name: edges[name] for name in MACRO} | edges
  lines += [
    f'  {SHORT.get(name, name):<14} {row[name]:.4f}   '
    f'95 %: {edge[0]:.4f} to {edge[1]:.4f}'
    for name, edge in edges.items()
    if not isinstance(edge, dict)
  ]
  lines += [
    f'  {name:<14} {row[name]:.4f}'
    for name in ('distinct1', 'distinct2', 'ece', 'temperature')
    if name in row
  ]
  return '\n'.join(lines)


def _predictor(task):
  """Returns the module that predicts for a task; None: it predicts nothing.

  It has `predict(run, split, limit)`, a list of rows, and `score_run(run,
  rows, scorer)`, a dict with 'intervals'.
  """
  # Scores need large packages: they are imported where they are needed.
  return importlib.import_module(task.predictor) if task.predictor else None


def _scorer(task, predictor, bertscore):
  """Returns the Scorer of BERTScore; None if it wasn't requested."""
  if not bertscore:
    return None
  if not getattr(predictor, 'TAKES_SCORER', False):
    errors.refuse(
      '--bertscore',
      bertscore,
      'BERTScore is for dialogue, and the run learned '
      f'{task.name!r}: leave it out',
    )
  return bertscore_lib.open_scorer(bertscore)


def draw_scores(row: Mapping[str, Any], path: pathlib.Path) -> None:
  """Draws a split's scores as bars, with whiskers where there is an interval.

  Shares of 1 are one panel, bits per byte with gzip's and xz's another.
  """
  first = MACRO if row.get('uneven') else ()
  groups = {'share': (*first, *(x for x in SHARES if x not in first))}
  if 'bits_per_byte' in row:
    groups['bits per byte'] = 'bits_per_byte', 'gzip', 'xz'
  values = [{n: row[n] for n in names if n in row} for names in groups.values()]
  counts = [*map(len, values)]
  figure, panels = plots.panels(
    (1.6 * len(groups) + 1.1 * sum(counts), 3.6),
    1,
    len(groups),
    width_ratios=[1 + count for count in counts],
  )
  for axes, unit, heights in zip(panels[0], groups, values, strict=True):
    _draw_bars(axes, heights, row['intervals'])
    axes.set_ylabel(unit)
  # Shares have the same scale in all splits.
  low, high = panels[0, 0].get_ylim()
  panels[0, 0].set_ylim(low, max(high, 1.08))
  figure.suptitle(f'{row["split"]}, step {row["step"]}')
  plots.save(figure, path)


def _draw_bars(axes, values, intervals):
  heights = np.array([*values.values()])
  low, high = np.array([intervals.get(n, (x, x)) for n, x in values.items()]).T
  # A percentile interval need not hold the value.
  whiskers = np.maximum([heights - low, high - heights], 0)
  names = [NAMES.get(name, name) for name in values]
  peers = [name in ('gzip', 'xz') for name in values]
  colors = [PEER if peer else plots.BLUE for peer in peers]
  axes.bar(names, heights, 0.6, color=colors, alpha=0.75)
  known = np.flatnonzero(whiskers.any(0))
  axes.errorbar(
    known, heights[known], whiskers[:, known], fmt='none', capsize=4, ecolor='k'
  )
  center = {'xytext': (0, 3), 'ha': 'center', 'va': 'bottom', 'fontsize': 9}
  for place, (value, top) in enumerate(zip(heights, high, strict=True)):
    plots.label(axes, f'{value:.3f}', (place, max(value, top)), **center)
  axes.set_xlim(-0.6, len(names) - 0.4)
  axes.margins(y=0.12)
  plots.dress(axes, 'y')


def draw_confusion_matrix(row: Mapping[str, Any], path: pathlib.Path) -> None:
  """Draws how often each class was predicted for each true class."""
  counts = np.array(row['confusion_matrix'])
  classes = row['classes']
  if not counts[:, -1].any():  # the column of invalid outputs
    counts, classes = counts[:, :-1], classes[:-1]
  size = 1.8 + 0.75 * len(classes)
  figure, axes = plots.panel((size + 0.6, size))
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  axes.imshow(shares, vmin=0, vmax=1, cmap='Blues')
  for (i, j), count in np.ndenumerate(counts):
    color = 'white' if shares[i, j] > 0.55 else 'black'
    text = f'{count:,}\n{shares[i, j]:.0%}'
    axes.text(j, i, text, ha='center', va='center', color=color)
  turned = {'rotation': 30, 'ha': 'right'} if len(classes) > 3 else {}
  axes.set_xticks(range(len(classes)), classes, **turned)
  axes.set_yticks(range(len(counts)), classes[: len(counts)])
  axes.set(xlabel='predicted', ylabel='true')
  axes.set_title(f'{row["split"]}, step {row["step"]}')
  plots.save(figure, path)
