"""How variants and lines look: the same in all figures of a comparison."""

from collections.abc import Iterable
from typing import NamedTuple

from rnn_jax import plots

MARKERS = 'osD^vPX'


class Style(NamedTuple):
  """How a variant looks; the fields are options of `Axes.plot`."""

  color: str
  marker: str
  linestyle: str


def of(names: Iterable[str]) -> dict[str, Style]:
  """Returns the look of each of some variants or lines.

  Up to 28 of them, no two share color and line, or color and marker.
  """
  count = len(plots.COLORS)
  return {
    name: Style(
      plots.COLORS[n % count],
      MARKERS[(n + n // count) % len(MARKERS)],
      plots.LINES[n // count % len(plots.LINES)],
    )
    for n, name in enumerate(names)
  }
