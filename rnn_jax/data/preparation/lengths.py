"""How long the examples of a dataset are, drawn."""

import numpy as np

from rnn_jax.data.preparation import examples


def words(column: str) -> str:
  """Returns what the words of a column are called."""
  return f'{column}: words'


def of(example: examples.Example, label: str) -> dict[str, int]:
  """Returns what can be counted: words of texts, items of lists."""
  found = {}
  for name, value in example.values.items():
    if name == label:
      continue
    if isinstance(value, list):
      found[f'{name}: items'] = len(value)
      if isinstance(value[0], str):
        found[words(name)] = sum(len(item.split()) for item in value)
    elif isinstance(value, str):
      found[words(name)] = len(value.split())
  return found


def summary(lengths: dict[str, list[int]]) -> dict[str, dict[str, float]]:
  """Returns least, median, 95th percentile and most of each count."""
  points = {'least': 0, 'median': 50, '95 %': 95, 'most': 100}
  return {
    name: {
      told: float(np.percentile(values, percent))
      for told, percent in points.items()
    }
    for name, values in lengths.items()
  }


def draw(lengths: dict[str, dict[str, list[int]]], path: str) -> None:
  """Writes a PNG with a histogram for each count, the splits in one panel.

  Args:
    lengths: {split: {what is counted: values}}.
    path: the file to write.
  """
  from matplotlib import figure

  names = list(dict.fromkeys(n for found in lengths.values() for n in found))
  canvas = figure.Figure(figsize=(6, 3 * len(names)), layout='constrained')
  panels = canvas.subplots(len(names), squeeze=False)[:, 0]
  for name, panel in zip(names, panels, strict=True):
    every = [v for found in lengths.values() for v in found.get(name, ())]
    edges = np.histogram_bin_edges(every, bins=min(50, len(set(every))))
    for split, found in lengths.items():
      values = found.get(name, ())
      panel.hist(
        values,
        edges,
        weights=np.full(len(values), 1 / max(1, len(values))),
        histtype='step',
        label=f'{split} ({len(values):,})',
      )
    panel.set_xlabel(name)
    panel.set_ylabel('share of examples')
    panel.legend()
  canvas.savefig(path, dpi=120)
