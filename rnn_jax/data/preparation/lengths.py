"""The lengths of the examples of a dataset, as numbers and as a plot."""

import numpy as np

from rnn_jax.data.tables import values as values_lib


def words(column: str) -> str:
  """Returns the name of the word count of a column."""
  return f'{column}: words'


def count(example: values_lib.Row, label: str) -> dict[str, int]:
  """Counts words of texts and items of lists, except in column `label`."""
  counts = {}
  for name, value in example.values.items():
    if name == label:
      continue
    if isinstance(value, list):
      counts[f'{name}: items'] = len(value)
      if value and isinstance(value[0], str):
        counts[words(name)] = sum(len(item.split()) for item in value)
    elif isinstance(value, str):
      counts[words(name)] = len(value.split())
  return counts


def informative(
  lengths: dict[str, dict[str, list[int]]],
) -> dict[str, dict[str, list[int]]]:
  """Leaves out counts that are the same in all examples, as those of ids."""
  names = {name for counts in lengths.values() for name in counts}
  varied = {
    name
    for name in names
    if len({v for counts in lengths.values() for v in counts.get(name, ())}) > 1
  }
  kept = {
    split: {name: values for name, values in counts.items() if name in varied}
    for split, counts in lengths.items()
  }
  return {split: counts for split, counts in kept.items() if counts}


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
  from rnn_jax import plots  # matplotlib takes long to import

  names = list(dict.fromkeys(n for counts in lengths.values() for n in counts))
  figure, panels = plots.panels((6, 3 * len(names)), len(names))
  for name, panel in zip(names, panels.flat, strict=True):
    pooled = [v for counts in lengths.values() for v in counts.get(name, ())]
    edges = np.histogram_bin_edges(pooled, bins=min(50, len(set(pooled))))
    drawn = {split: c[name] for split, c in lengths.items() if name in c}
    for n, (split, values) in enumerate(drawn.items()):
      panel.hist(
        values,
        edges,
        weights=np.full(len(values), 1 / len(values)),
        histtype='step',
        color=plots.COLORS[n],
        label=f'{split} ({len(values):,})',
      )
    panel.set(xlabel=name, ylabel='fraction of examples')
    plots.dress(panel)
    panel.legend()
  plots.save(figure, path)
