"""Variants as lines and columns, and the best of those between."""

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan
from rnn_jax.experiments import plots
from rnn_jax.experiments import records
from rnn_jax.experiments import report
from rnn_jax.experiments import summary
from rnn_jax.models import language_model
from tests.experiments import made

AXES = axes.Axes('cell', 'task', 'rate')
SCORES = {
  'gru/s5/0.1': 0.25,
  'gru/s5/0.3': 0.5,
  'gru/digits/0.1': 1.0,
  'lstm/s5/0.1': 0.125,
  'lstm/s5/0.3': None,
}


def compared(scores=None, chosen=AXES, **fields):
  """(the grid, its summary, its rows) of {variant: accuracy}."""
  scores = SCORES if scores is None else scores
  grid = made.grid(
    variants={name: {} for name in scores},
    metrics=(('accuracy', 'higher', 'right'),),
    baseline='',
    axes=chosen,
  )
  grid_lib.check(grid)
  rows = made.rows(
    *(
      made.row(name, 0, {'accuracy': score}, state_bytes=2048)
      for name, score in scores.items()
    )
  )
  return grid, summary.summarize(grid, rows), rows


def lines(text):
  """The rows of Markdown tables, without spaces at the ends of cells."""
  return [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in text.splitlines()
    if line.startswith('|')
  ]


def test_of_variants_between_lines_and_columns_the_best_counts():
  _, made_summary, _ = compared()
  (metric,) = made_summary['metrics']
  assert axes.cells(AXES, metric, made_summary['variants']) == {
    's5': {
      'gru': axes.Cell('gru/s5/0.3', '0.3', 2),
      'lstm': axes.Cell('lstm/s5/0.1', '0.1', 1),
    },
    'digits': {'gru': axes.Cell('gru/digits/0.1', '0.1', 1)},
  }
  lower = metric | {'better': 'lower'}
  cells = axes.cells(AXES, lower, made_summary['variants'])
  assert cells['s5']['gru'].variant == 'gru/s5/0.1'


def test_a_report_has_a_table_of_lines_and_columns_and_who_leads_in_each():
  _, made_summary, _ = compared()
  text = report.page(made_summary)
  assert 'right \N{UPWARDS ARROW}, at the best rate, of how many:' in text
  head, _, gru, lstm = lines(text)
  assert head == ['cell', 'parameters', 'state of a row KiB', 's5', 'digits']
  first = ['gru', '1,234', '2.000', '**0.5000** (0.3 of 2)']
  assert gru == [*first, '1.000 (0.1 of 1)']
  assert lstm[-2:] == ['0.1250 (0.1 of 1)', '-']
  assert 'right, s5 (higher is better): gru leads with 0.5000, before' in text
  assert 'right, digits (higher is better): only gru has a score' in text
  assert "lstm/s5/0.3/seed0: no finite 'accuracy'" in text


def test_without_columns_all_choices_are_shown_and_the_best_is_bold():
  scores = {'gru/0.1': 0.25, 'gru/0.3': 0.5, 'lstm/0.3': 0.75}
  _, made_summary, _ = compared(scores, axes.Axes('cell', best='rate'))
  head, _, gru, lstm = lines(report.page(made_summary))
  assert head[-2:] == ['0.1', '0.3'] and 'for each rate:' in report.page(
    made_summary
  )
  assert gru[-2:] == ['0.2500', '**0.5000**'] and lstm[-2:] == [
    '-',
    '**0.7500**',
  ]


def test_figures_are_of_states_and_else_of_columns(tmp_path):
  grid, made_summary, rows = compared()
  drawn = plots.draw(grid, made_summary, rows, tmp_path)
  assert [name for name, _ in drawn] == ['states.png']
  for row in rows.values():
    del row['state_bytes']
  without = summary.summarize(grid, rows)
  drawn = plots.draw(grid, without, rows, tmp_path)
  assert [name for name, _ in drawn] == ['columns.png']
  assert [path.name for path in tmp_path.iterdir()] == ['columns.png']


@pytest.mark.parametrize('name', ('gru', 'gru/s5', 'a/b/c/d', 'gru//0.1'))
def test_a_name_has_as_many_parts_as_there_are_axes(name):
  with pytest.raises(errors.InputError, match='a folder for each of cell/task'):
    grid_lib.check(made.grid(variants={name: {}}, baseline='', axes=AXES))


def test_a_variant_may_have_a_config_of_its_own():
  config = 'configs/recall.py:gru'
  grid = made.grid(
    config='configs/recall.py',
    variants={'a': {}, 'b': {'config': config, 'cell.state_width': 8}},
    baseline='',
  )
  run = plan.make(grid)('b', 3)
  assert run.overrides == {'config': config, 'cell.state_width': 8}
  assert run.flags[0].endswith('configs/recall.py:gru')
  parsed = config_lib.parse(run.config)
  assert (parsed.model.cell, parsed.cell.state_width) == ('gru', 8)
  assert plan.make(grid)('a', 0).config['model']['cell'] == 'simple_rnn'


def test_what_all_variants_change_is_said_once():
  grid = made.grid()
  changes = {'a.b': 1, 'a.c': 'x'}
  rows = made.rows(
    made.row('narrow', 0, {'loss': 1.0}, overrides=changes),
    made.row('wide', 0, {'loss': 1.0}, overrides=changes | {'a.c': 'y'}),
  )
  text = report.page(summary.summarize(grid, rows))
  assert "* all: `a.b=1`\n* narrow: `a.c='x'`\n* wide: `a.c='y'`" in text


EQUAL = 'cells_text', 'cells_recall', 'long_range', 'mqar'


@pytest.mark.parametrize('name', EQUAL)
def test_cells_have_as_many_weights_as_the_reference(name):
  grid = grid_lib.load(f'configs/experiments/{name}.py')
  by_column = {}
  for (variant, _), row in records.read(f'docs/experiments/{name}').items():
    place = grid.axes.place(variant)
    cell = place.lines.partition('-')[0]
    if place.lines == cell:
      by_column.setdefault(place.columns, {})[cell] = row['parameters']
  for counts in by_column.values():
    wanted = counts['simple_rnn']
    assert len(counts) >= 18
    assert all(abs(n - wanted) <= 0.05 * wanted for n in counts.values())


@pytest.mark.parametrize(
  ('name', 'variant', 'reference'),
  (
    ('cells_text', 'gru/0.003', 'simple_rnn/0.003'),
    ('cells_recall', 'qrnn/0.003', 'simple_rnn/0.003'),
    ('mqar', 'lstm/64-4/0.01', 'simple_rnn/64-4/0.01'),
  ),
)
def test_a_width_gives_the_weights_of_the_reference(name, variant, reference):
  grid = grid_lib.load(f'configs/experiments/{name}.py')

  def weights(variant):
    own = dict(grid.variants[variant])
    _, raw = plan.load(own.pop(plan.CONFIG, grid.config))
    model = language_model.from_config(
      config_lib.parse(plan.changed(raw, own)), 65
    )
    tokens = jax.ShapeDtypeStruct((1, 1), 'int32')
    state = jax.eval_shape(lambda: model.apply({}, 1, method='init_state'))
    shapes = jax.eval_shape(model.init, jax.random.key(0), state, tokens)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))

  assert weights(variant) == pytest.approx(weights(reference), rel=0.03)
