"""Whether two variants differ by more than runs of one variant do.

A seed gives two variants the same data in the same order, so they are compared
seed by seed: their difference is the mean over the seeds that both have, and
its spread the standard deviation over these. Variants with less than two seeds
in common differ by their means, and the spread is the larger deviation of the
two. With one seed it is unknown, and a measured cost must differ by its usual
noise on a machine that does other work too. A score must always differ by
SCORES of its size: less than that is rounding. This is a visual aid for a
handful of seeds, not a statistical test.
"""

import statistics
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

Figure = Mapping[str, Any]  # of summary.summarize: mean, deviation, values

SCORES = 1e-3  # of the larger mean; also of what the compiler counts
NOISE = {  # of the larger mean, where the spread is unknown
  'seconds': 0.1,
  'tokens_per_second': 0.1,
  'step_seconds': 0.1,
  'compile_seconds': 0.1,
}


class Difference(NamedTuple):
  """The first figure less the second; `spread` is None where it is unknown."""

  mean: float
  spread: float | None


def between(first: Figure, second: Figure) -> Difference:
  """Returns how far two figures are apart."""
  values, others = first['values'], second['values']
  paired = [values[seed] - others[seed] for seed in values if seed in others]
  if len(paired) > 1:
    return Difference(statistics.fmean(paired), statistics.stdev(paired))
  deviations = first['deviation'], second['deviation']
  spread = None if None in deviations else max(deviations)
  return Difference(first['mean'] - second['mean'], spread)


def seen(key: str, first: Figure, second: Figure) -> bool:
  """Returns whether a score or cost of two differs by more than noise.

  Never if the mean over all seeds and that over common ones disagree.
  """
  difference = between(first, second)
  if difference.mean * (first['mean'] - second['mean']) < 0:
    return False
  known = difference.spread
  least = NOISE.get(key, SCORES) if known is None else SCORES
  size = max(abs(first['mean']), abs(second['mean']))
  return abs(difference.mean) > max(known or 0, least * size)


def level(key: str, best: str, figures: Mapping[str, Figure]) -> list[str]:
  """Returns the variants that don't differ from `best`, itself included."""
  return [
    name
    for name, figure in figures.items()
    if name == best or not seen(key, figures[best], figure)
  ]


def with_means(
  key: str, variants: Mapping[str, Any], names: Iterable[str] | None = None
) -> dict[str, Figure]:
  """Returns {variant: its figure} of those that have one.

  Args:
    key: of a score or cost.
    variants: of summary.summarize.
    names: of the variants to look at; None: all.
  """
  figures = {
    name: variants[name]['figures'].get(key, {'mean': None})
    for name in (variants if names is None else names)
  }
  return {n: each for n, each in figures.items() if each['mean'] is not None}
