"""Figures show what was measured, each variant in its own color."""

import pytest
from matplotlib import colors
from matplotlib import pyplot
from matplotlib.backends import backend_agg

from rnn_jax import plots as shared
from rnn_jax.experiments import plots
from rnn_jax.experiments import summary
from tests.experiments import made

NAMES = ('curves.png', 'scores.png', 'memory_quality.png')


def test_the_band_is_mean_and_range_where_all_seeds_have_a_loss():
  runs = [
    [(10, 1.0, 4.0), (20, 2.0, 3.0), (30, 3.0, 2.0)],
    [(10, 2.0, 5.0), (20, 5.0, 1.0)],  # stopped early
  ]
  assert plots.band(runs) == [
    (10, 1.5, 4.5, 4.0, 5.0),
    (20, 3.5, 2.0, 1.0, 3.0),
  ]


def test_curves_are_those_of_finished_runs():
  curve = {'curve': [[2, 2.5, 3.0], [4, 3.5, 2.0]]}
  rows = made.rows(
    made.row('narrow', 0, {'loss': 1.0}) | curve,
    made.row('narrow', 1, {'loss': 1.0}),  # it was never evaluated
    made.row('wide', 0) | curve,
  )
  assert plots.curves(rows) == {'narrow': [[(2, 2.5, 3.0), (4, 3.5, 2.0)]]}


def test_variants_look_different():
  many = made.grid(variants={f'v{n}': {} for n in range(28)}, baseline='')
  looks = shared.looks(many.variants)
  for parts in (('color', 'linestyle'), ('color', 'marker')):
    seen = {tuple(getattr(x, part) for part in parts) for x in looks.values()}
    assert len(seen) == 28
  assert len({look.color for look in [*looks.values()][:7]}) == 7


def test_the_figures_show_each_variant_in_its_color(tmp_path):
  rows = {}
  for variant, loss in (('narrow', 2.0), ('wide', 1.0)):
    for seed in (0, 1):
      values = {'loss': loss + seed / 4, 'accuracy': 0.5}
      curve = [[n, 0.0, loss + 1 / n] for n in range(1, 9)]
      row = made.row(variant, seed, values) | {'curve': curve}
      rows |= made.rows(row)
  grid = made.grid(notes={'paper': {'loss': 1.5}})
  comparison = summary.summarize(grid, rows)
  drawn = plots.draw(grid, comparison, rows, tmp_path)
  assert tuple(name for name, _ in drawn) == NAMES
  for name in ('curves.png', 'memory_quality.png'):
    pixels = pyplot.imread(tmp_path / name)[..., :3]
    assert min(pixels.shape[:2]) > 300
    for look in shared.looks(grid.variants).values():
      distance = abs(pixels - colors.to_rgb(look.color)).max(axis=-1)
      assert (distance < 0.02).sum() > 100, (name, look)
  pixels = pyplot.imread(tmp_path / 'scores.png')[..., :3]
  for look in shared.looks(
    grid.variants
  ).values():  # bars let the grid shine through
    shade = [0.75 * part + 0.25 for part in colors.to_rgb(look.color)]
    assert (abs(pixels - shade).max(axis=-1) < 0.02).sum() > 1000, look


def test_one_variant_has_curves_and_nothing_to_compare(tmp_path):
  row = made.row('alone', 0, {'loss': 1.0}) | {'curve': [[1, 0.0, 1.0]]}
  rows, grid = made.rows(row), made.grid(variants={'alone': {}}, baseline='')
  comparison = summary.summarize(grid, rows)
  drawn = plots.draw(grid, comparison, rows, tmp_path)
  assert [name for name, _ in drawn] == ['curves.png']


def test_a_curve_without_times_is_drawn_by_steps_only():
  timed = [[(1, 2.0, 0.9), (2, 4.0, 0.7)]]
  untimed = [[(1, None, 0.8), (2, None, 0.6)]]
  assert plots.band(timed + untimed)[0] == (
    1,
    None,
    pytest.approx(0.85),
    0.8,
    0.9,
  )
  looks = shared.looks(['timed', 'untimed'])
  figure = plots._curves(looks, {'timed': timed, 'untimed': untimed})
  by_step, by_time = figure.axes
  assert [line.get_label() for line in by_step.lines] == ['timed', 'untimed']
  assert [line.get_label() for line in by_time.lines] == ['timed']


def test_a_legend_fits_the_figure_and_leaves_room_for_the_axes():
  for count, letters in ((2, 5), (4, 14), (12, 28), (9, 40), (30, 40)):
    figure, axes = shared.panel((6.4, 4.4))
    for n in range(count):
      axes.plot([0], [0], 'o', label=f'{n:02}'.rjust(letters, 'n'))
    shared.legend_below(figure, axes)
    backend_agg.FigureCanvasAgg(figure).draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width, (count, letters)
    assert axes.get_window_extent().height > 2 * shared.DPI, (count, letters)
    assert box.y1 < axes.get_window_extent().y0, (count, letters)


@pytest.mark.parametrize('rows', ({}, made.rows(made.row('wide', 0))))
def test_without_data_nothing_is_drawn_and_old_figures_are_removed(
  tmp_path, rows
):
  grid = made.grid()
  for name in NAMES:
    (tmp_path / name).write_text('old')
  assert plots.draw(grid, summary.summarize(grid, rows), rows, tmp_path) == []
  assert not [*tmp_path.iterdir()]
