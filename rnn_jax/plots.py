"""Panels, colors, labels, legends and files of all figures.

The code of each figure is next to its data. No figure needs a display.
"""

import io
import math
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import NamedTuple

import matplotlib.axes
import matplotlib.axis
import matplotlib.figure
import matplotlib.ticker
import numpy as np

from rnn_jax.system import files

# Okabe and Ito's colors, which color-blind readers can tell apart, without the
# yellow, which is too light on paper.
COLORS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#E69F00',
  '#56B4E9',
  '#000000',
)
BLUE, ORANGE = COLORS[:2]
LINES = '-', '--', ':', '-.'
MARKERS = 'osD^vPX'
DPI = 140
LEGEND_ROWS = 4  # for which a figure has room
PLAIN = 1e-4, 1e7  # a logarithmic axis between these has no powers of ten

Figure = matplotlib.figure.Figure
Axes = matplotlib.axes.Axes
Axis = matplotlib.axis.Axis


class Look(NamedTuple):
  """How a line or its points look; the fields are options of `Axes.plot`."""

  color: str
  marker: str
  linestyle: str


def looks(names: Iterable[str]) -> dict[str, Look]:
  """Returns the look of each name.

  Up to 28 of them, no two share color and line, or color and marker.
  """
  count = len(COLORS)
  return {
    name: Look(
      COLORS[n % count],
      MARKERS[(n + n // count) % len(MARKERS)],
      LINES[n // count % len(LINES)],
    )
    for n, name in enumerate(names)
  }


def panels(
  size: tuple[float, float], down: int = 1, across: int = 1, **options: Any
) -> tuple[Figure, np.ndarray]:
  """Returns a figure and its panels, an array of [row, column].

  Args:
    size: width and height in inches.
    down: rows of panels.
    across: columns of panels.
    **options: of `Figure.subplots`.
  """
  figure = Figure(figsize=size, layout='constrained')
  return figure, figure.subplots(down, across, squeeze=False, **options)


def panel(size: tuple[float, float]) -> tuple[Figure, Axes]:
  """Returns a figure and its only panel."""
  figure, axes = panels(size)
  return figure, axes[0, 0]


def save(figure: Figure, path: str | pathlib.Path) -> pathlib.Path:
  """Writes a PNG, in place of an existing file or link; returns its path."""
  content = io.BytesIO()
  figure.savefig(content, format='png', dpi=DPI, metadata={'Software': None})
  files.write_whole(path, content.getvalue())
  return pathlib.Path(path)


def save_all(
  figures: Mapping[str, tuple[Figure | None, str]], folder: pathlib.Path
) -> list[tuple[str, str]]:
  """Writes {file name: (figure, caption)} in place of earlier files.

  Returns:
    (file name, caption) of the figures that aren't None.
  """
  written = []
  for name, (figure, caption) in figures.items():
    (folder / name).unlink(missing_ok=True)
    if figure is not None:
      save(figure, folder / name)
      written.append((name, caption))
  return written


def dress(axes: Axes, grid: Literal['both', 'x', 'y'] = 'both') -> None:
  """Adds a light grid along 'x', 'y' or 'both', and removes the frame."""
  axes.grid(alpha=0.3, axis=grid)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)


def name_ticks(axis: Axis) -> None:
  """Labels at least two ticks of a logarithmic axis, as plain numbers.

  Call it once all data are drawn.
  """
  low, high = axis.get_view_interval()
  decades = np.log10(high / low)
  locator: matplotlib.ticker.Locator
  if decades < 1:
    locator = matplotlib.ticker.MaxNLocator(5, steps=(1, 2, 5, 10))
  else:
    between = (1, 2, 5) if decades < 3 else (1,)
    locator = matplotlib.ticker.LogLocator(subs=between, numticks=12)
  axis.set_major_locator(locator)
  axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
  if PLAIN[0] <= low and high <= PLAIN[1]:
    axis.set_major_formatter('{x:,g}')


def label(
  axes: Axes, text: str, at: tuple[float, float], **options: Any
) -> None:
  """Writes a text just right of a point; `options` are of `annotate`."""
  defaults: dict[str, Any] = {'xytext': (5, 0), 'va': 'center', 'fontsize': 8}
  axes.annotate(text, at, textcoords='offset points', **defaults | options)


def tick_ends(axis: matplotlib.axis.Axis) -> None:
  """Widens the limits of a linear axis to ticks, so that both ends have one."""
  ticks = axis.get_major_locator().tick_values(*axis.get_view_interval())
  axis.set_view_interval(ticks[0], ticks[-1], ignore=True)
  axis.set_ticks(ticks)


def tick_steps(axes: Axes, last: int) -> None:
  """Ticks whole steps from 0 to the last one along x, both included."""
  locator = matplotlib.ticker.MaxNLocator(6, integer=True, steps=[1, 2, 5, 10])
  ticks = [n for n in locator.tick_values(0, last) if 0 <= n < last]
  if ticks[1:] and last - ticks[-1] < (ticks[1] - ticks[0]) / 2:
    ticks.pop()  # their labels would touch
  ticks.append(last)
  margin = 0.02 * last
  axes.set_xlim(-margin, last + margin)
  axes.set_xticks(ticks, [f'{n:,.0f}' for n in ticks])


def name_rows(axes: Axes, names: Sequence[str]) -> None:
  """Names rows 0, 1, ... of a panel from the top down."""
  axes.set_yticks(range(len(names)), names, fontsize=8)
  axes.set_ylim(len(names) - 0.4, -0.6)


def bars(
  axes: Axes, values: Mapping[str, float], title: str, color: str
) -> None:
  """Draws a horizontal bar for each value."""
  widths = [*values.values()]
  drawn = axes.barh(range(len(widths)), widths, 0.62, color=color, alpha=0.75)
  axes.bar_label(drawn, fmt='{:.4g}', padding=4, fontsize=8)
  name_rows(axes, [*values])
  axes.set_xlabel(title)
  axes.margins(x=0.15)
  dress(axes, 'x')


def legend_below(figure: Figure, *panels: Axes) -> None:
  """Draws one legend below all panels; the figure grows by its later rows."""
  handles: dict[str, Any] = {}
  for axes in panels:
    for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
      handles.setdefault(name, handle)
  if handles:
    # In points: at size 8 a letter is 5 wide; line, marker and gaps are 50.
    column = 5 * max(map(len, handles)) + 50
    columns = max(1, int(72 * figure.get_figwidth() / column))
    rows = math.ceil(len(handles) / columns)
    more = max(0, rows - LEGEND_ROWS) * 12 / 72  # 12 points each
    figure.set_figheight(figure.get_figheight() + more)
    figure.legend(
      handles.values(),
      handles.keys(),
      loc='outside lower center',
      ncols=min(columns, len(handles)),
      fontsize=8,
      frameon=False,
    )
