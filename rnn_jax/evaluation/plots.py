"""Scores as pictures."""

import matplotlib

matplotlib.use('Agg')

import numpy as np  # noqa: E402
from matplotlib import pyplot  # noqa: E402

BAR = '#4477aa'
PEER = '#bbbbbb'
NAMES = {'bits_per_byte': 'this model', 'gzip': 'gzip -9', 'xz': 'xz -9e'}
SHARES = (
  'accuracy',
  'exact',
  'macro_f1',
  'bleu',
  'rouge1',
  'rouge2',
  'rougeL',
  'bertscore_f1',
  'distinct1',
  'distinct2',
  'valid',
)


def draw_scores(row, path):
  """Draws a split's scores as bars, with whiskers where there is an interval.

  Shares of 1 are one panel, bits per byte beside gzip's and xz's another.
  """
  panels = [({name: row[name] for name in SHARES if name in row}, 'share')]
  if 'bits_per_byte' in row:
    names = ('bits_per_byte', 'gzip', 'xz')
    panels.append(({name: row[name] for name in names}, 'bits per byte'))
  counts = [len(values) for values, _ in panels]
  figure, all_axes = pyplot.subplots(
    1,
    len(panels),
    figsize=(1.6 * len(panels) + 1.1 * sum(counts), 3.6),
    width_ratios=[1 + count for count in counts],
    layout='constrained',
    squeeze=False,
  )
  for axes, (values, unit) in zip(all_axes[0], panels, strict=True):
    _draw_bars(axes, values, row['intervals'])
    axes.set_ylabel(unit)
  # Shares have one scale, from split to split.
  low, high = all_axes[0, 0].get_ylim()
  all_axes[0, 0].set_ylim(low, max(high, 1.08))
  figure.suptitle(f'{row["split"]}, step {row["step"]}')
  figure.savefig(path, dpi=130)
  pyplot.close(figure)


def _draw_bars(axes, values, edges):
  edges = {name: edges.get(name, (x, x)) for name, x in values.items()}
  heights = np.array([*values.values()])
  low, high = np.array([*edges.values()]).T
  # A percentile interval need not hold the value.
  whiskers = np.maximum([heights - low, high - heights], 0)
  names = [NAMES.get(name, name) for name in values]
  colors = [PEER if name in ('gzip', 'xz') else BAR for name in values]
  axes.bar(names, heights, 0.6, color=colors, alpha=0.85)
  told = [n for n in range(len(names)) if whiskers[:, n].any()]
  axes.errorbar(
    told, heights[told], whiskers[:, told], fmt='none', capsize=4, ecolor='k'
  )
  for place, (value, top) in enumerate(zip(heights, high, strict=True)):
    axes.annotate(
      f'{value:.3f}',
      (place, max(value, top)),
      xytext=(0, 3),
      textcoords='offset points',
      ha='center',
      fontsize=9,
    )
  axes.set_xlim(-0.6, len(names) - 0.4)
  axes.margins(y=0.12)
  axes.grid(axis='y', alpha=0.3)
  axes.set_axisbelow(True)


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
