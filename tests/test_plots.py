"""What all figures share."""

import pytest

from rnn_jax import plots

RANGES = {
  'a part of a decade': (0.173, 0.824),
  'one power of ten': (0.1, 1.3),
  'two decades': (0.013, 0.21),
  'many decades': (1e-9, 1e-2),
  'next to nothing': (0.52, 0.53),
  'large': (300, 90_000),
}


@pytest.mark.parametrize('case', RANGES)
def test_a_logarithmic_axis_has_some_ticks_and_not_many(case):
  figure, axes = plots.panel((6, 4))
  axes.plot(RANGES[case], (1, 2))
  axes.set_xscale('log')
  plots.name_ticks(axes.xaxis)
  figure.draw_without_rendering()
  low, high = axes.get_xlim()
  named = [
    text.get_text()
    for text in axes.get_xticklabels(which='both')
    if text.get_text() and low <= text.get_position()[0] <= high
  ]
  assert 2 <= len(named) <= 10, named
  if high < 1e6 and low > 1e-4:
    assert not any('^' in name for name in named)


def test_a_figure_replaces_a_link_and_leaves_what_it_leads_to(tmp_path):
  (tmp_path / 'other').write_text('kept')
  (tmp_path / 'x.png').symlink_to('other')
  figure, _ = plots.panel((1, 1))
  path = plots.save(figure, tmp_path / 'x.png')
  assert path.read_bytes().startswith(b'\x89PNG') and not path.is_symlink()
  assert (tmp_path / 'other').read_text() == 'kept'
