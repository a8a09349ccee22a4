"""Pictures of measurements: what is drawn, and what is left out."""

import pytest

from benchmarks.harness import plots as plots_lib


@pytest.fixture(name='drawn')
def _drawn(tmp_path, monkeypatch):
  """Plots of a folder, and the axes of what they draw."""
  made = []
  new = plots_lib._axes
  monkeypatch.setattr(
    plots_lib, '_axes', lambda *size: made.append(new(*size)) or made[-1]
  )
  return plots_lib.Plots(tmp_path, 'some_cpu'), made


def labels(axes):
  return [line.get_label() for line in axes.lines]


def test_a_run_that_diverges_leaves_the_others_their_room(drawn, tmp_path):
  plots, axes = drawn
  series = {
    'good': [(10, 4.0), (20, 2.0)],
    'better': [(10, 5.0), (20, 1.0)],
    'gone': [(10, 6.0), (20, 900.0)],
  }
  text = plots.losses('loss', series, ('step', 'nats'))
  assert text == '![nats against step](plots/some_cpu_loss.png)'
  assert (tmp_path / 'plots/some_cpu_loss.png').stat().st_size > 5000
  assert labels(axes[0]) == ['good', 'better']
  assert axes[0].get_ylim() == pytest.approx((0.95, 5.0))


def test_lines_of_one_color_differ(drawn):
  plots, axes = drawn
  series = {str(n): [(1, n + 1), (2, n + 2)] for n in range(13)}
  plots.lines('many', series | {'none': []}, ('length', 's'))
  looks = {(line.get_color(), line.get_linestyle()) for line in axes[0].lines}
  assert len(looks) == 13


@pytest.mark.parametrize(
  ('values', 'scale'),
  (({'a': 1.0, 'b': 20.0}, 'linear'), ({'a': 1.0, 'b': 40.0}, 'log')),
)
def test_bars_begin_at_0_if_the_shortest_can_be_seen(drawn, values, scale):
  plots, axes = drawn
  plots.bars('bars', values, 'ms')
  assert axes[0].get_xscale() == scale
  assert (axes[0].get_xlim()[0] == 0) == (scale == 'linear')
