"""Scores as pictures."""

import matplotlib

matplotlib.use('Agg')

import numpy as np  # noqa: E402
from matplotlib import pyplot  # noqa: E402

BAR = '#4477aa'


def draw_scores(row, path):
  """Draws the scores that have an interval as bars with whiskers."""
  edges = row['intervals']
  values = [row[name] for name in edges]
  whiskers = np.array(
    [
      (max(value - low, 0), max(high - value, 0))
      for value, (low, high) in zip(values, edges.values(), strict=True)
    ]
  ).T
  figure, axes = pyplot.subplots(
    figsize=(1.6 + 1.1 * len(values), 3.6), layout='constrained'
  )
  axes.bar(
    [*edges], values, 0.6, yerr=whiskers, capsize=4, color=BAR, alpha=0.85
  )
  for place, (value, (_, high)) in enumerate(
    zip(values, edges.values(), strict=True)
  ):
    axes.annotate(
      f'{value:.3f}',
      (place, max(value, high)),
      xytext=(0, 3),
      textcoords='offset points',
      ha='center',
      fontsize=9,
    )
  axes.set_ylim(0, 1.08)
  axes.set_title(f'{row["split"]}, step {row["step"]}')
  axes.grid(axis='y', alpha=0.3)
  axes.set_axisbelow(True)
  figure.savefig(path, dpi=130)
  pyplot.close(figure)


def draw_confusion_matrix(row, path):
  """Draws how many texts of each class were taken for which."""
  table = np.array(row['confusion_matrix'])
  classes = row['classes']
  if not table[:, -1].any():  # the column of invalid outputs
    table, classes = table[:, :-1], classes[:-1]
  size = 1.8 + 0.75 * len(classes)
  figure, axes = pyplot.subplots(
    figsize=(size + 0.6, size), layout='constrained'
  )
  shares = table / np.maximum(table.sum(1, keepdims=True), 1)
  axes.imshow(shares, vmin=0, vmax=1, cmap='Blues')
  for (i, j), count in np.ndenumerate(table):
    color = 'white' if shares[i, j] > 0.55 else 'black'
    axes.text(
      j,
      i,
      f'{count:,}\n{shares[i, j]:.0%}',
      ha='center',
      va='center',
      color=color,
    )
  turned = {'rotation': 30, 'ha': 'right'} if len(classes) > 3 else {}
  axes.set_xticks(range(len(classes)), classes, **turned)
  axes.set_yticks(range(len(table)), classes[: len(table)])
  axes.set(xlabel='predicted', ylabel='true')
  axes.set_title(f'{row["split"]}, step {row["step"]}')
  figure.savefig(path, dpi=130)
  pyplot.close(figure)
