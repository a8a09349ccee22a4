"""Rows survive crashes; what they hold comes from the run's own metrics."""

import pytest

from rnn_jax import errors
from rnn_jax.experiments import records
from tests.experiments import made


def test_the_last_row_of_a_run_counts(tmp_path):
  for row in (made.row('a', 0), made.row('a', 1), made.row('a', 0, {'x': 1})):
    records.append(tmp_path, row)
  rows = records.read(tmp_path)
  assert [*rows] == [('a', 0), ('a', 1)]
  assert rows['a', 0] == made.row('a', 0, {'x': 1})
  assert rows['a', 1]['status'] == 'failed'


@pytest.mark.parametrize('kept', (0, 1))
def test_a_row_that_a_crash_truncated_is_ignored(tmp_path, kept):
  for seed in range(kept):
    records.append(tmp_path, made.row('a', seed))
  with open(tmp_path / records.NAME, 'a') as file:
    file.write('{"variant": "a", "see')
  assert len(records.read(tmp_path)) == kept
  records.append(tmp_path, made.row('b', 5))
  assert [*records.read(tmp_path)] == [('a', 0)][:kept] + [('b', 5)]
  assert len((tmp_path / records.NAME).read_text().splitlines()) == kept + 1


def test_damage_elsewhere_is_an_error(tmp_path):
  (tmp_path / records.NAME).write_text('{}\n[1]\n')
  with pytest.raises(errors.InputError, match='line 1 is damaged: remove'):
    records.read(tmp_path)


def test_a_missing_folder_has_no_rows(tmp_path):
  assert records.read(tmp_path / 'none') == {}


def test_figures_of_a_run(tmp_path):
  train = {'split': 'train', 'peak_memory_bytes': 5}
  measured = [
    train | {'step': 1, 'seconds': 3.0, 'tokens_per_second': 10.0},
    train | {'step': 2, 'seconds': 1.5, 'tokens_per_second': 70.0},
    {'step': 2, 'split': 'validation', 'loss': 2.0, 'best': 1.0},
    train
    | {'step': 4, 'seconds': 0.5, 'tokens_per_second': 40.0}
    | {'peak_memory_bytes': 9, 'step_bytes': 7},
    {'step': 4, 'split': 'validation', 'loss': 2.5, 'best': 0.0},
  ]
  made.write_metrics(tmp_path, measured)
  assert records.measured(tmp_path) == {
    'steps': 4,
    'seconds': 5.0,
    'step_seconds': 0.875,  # of (1.5, 0.5 / 2): the first row compiled
    'tokens_per_second': 55.0,
    'step_bytes': 7,
    'peak_memory_bytes': 9,
    'curve': [[2, 4.5, 2.0], [4, 5.0, 2.5]],
  }
  assert records.best_scores(tmp_path)['loss'] == 2.0
  none = records.measured(tmp_path / 'none')
  assert none.pop('curve') == [] and set(none.values()) == {None}


def test_curves_leave_out_losses_that_are_not_finite(tmp_path):
  measured = [
    {'step': 4, 'split': 'validation', 'loss': float('nan')},
    {'step': 8, 'split': 'validation', 'loss': 2.0},
  ]
  made.write_metrics(tmp_path, measured)
  assert records.measured(tmp_path)['curve'] == [[8, 0.0, 2.0]]


def test_a_folder_of_something_else_is_refused(tmp_path):
  (tmp_path / 'config.json').touch()
  with pytest.raises(errors.InputError, match="isn't a folder of exp.*json"):
    records.open_folder(str(tmp_path))
  with pytest.raises(errors.InputError, match='give a folder that can be'):
    records.open_folder(str(tmp_path / 'config.json' / 'x'))


def test_one_process_at_a_time(tmp_path):
  with records.open_folder(str(tmp_path)):
    with pytest.raises(errors.InputError, match='another process'):
      records.open_folder(str(tmp_path))
  records.open_folder(str(tmp_path)).close()
