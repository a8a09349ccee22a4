"""The lengths of the examples of a dataset, as numbers and as a plot."""

from collections.abc import Sequence

import numpy as np

from rnn_jax.data.preparation import examples


def words(column: str) -> str:
  """Returns the name of the word count of a column."""
  return f'{column}: words'


def count(example: examples.Example, label: str) -> dict[str, int]:
  """Counts words of texts and items of lists, except in column `label`."""
  counts = {}
  for name, value in example.values.items():
    if name == label:
      continue
    if isinstance(value, list):
      counts[f'{name}: items'] = len(value)
      if isinstance(value[0], str):
        counts[words(name)] = sum(len(item.split()) for item in value)
    elif isinstance(value, str):
      counts[words(name)] = len(value.split())
  return counts


def summary(lengths: dict[str, list[int]]) -> dict[str, dict[str, float]]:
  """Returns least, median, 95th percentile and most of each count."""
  points = {'least': 0, 'median': 50, '95 %': 95, 'most': 100}
  return {
    name: {
      point: float(np.percentile(values, percent))
      for point, percent in points.items()
    }
    for name, values in lengths.items()
  }


def draw(lengths: dict[str, dict[str, list[int]]], path: str) -> None:
  """Writes a PNG with a panel for each count, a histogram for each split.

  Args:
    lengths: {split: {name of the count: values}}.
    path: the file to write.
  """
  from matplotlib import figure

  names = list(dict.fromkeys(n for counts in lengths.values() for n in counts))
  canvas = figure.Figure(figsize=(6, 3 * len(names)), layout='constrained')
  panels = canvas.subplots(len(names), squeeze=False)[:, 0]
  for name, panel in zip(names, panels, strict=True):
    pooled = [v for counts in lengths.values() for v in counts.get(name, ())]
    edges = np.histogram_bin_edges(pooled, bins=min(50, len(set(pooled))))
    for split, counts in lengths.items():
      values: Sequence[int] = counts.get(name, ())
      panel.hist(
        values,
        edges,
        weights=np.full(len(values), 1 / max(1, len(values))),
        histtype='step',
        label=f'{split} ({len(values):,})',
      )
    panel.set_xlabel(name)
    panel.set_ylabel('fraction of examples')
    panel.legend()
  canvas.savefig(path, dpi=120)
