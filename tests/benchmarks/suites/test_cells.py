"""Cells get as many weights as the reference, and three rows are one line."""

import json

import pytest

from benchmarks.suites import cells
from configs import recall
from rnn_jax import config as config_lib
from tests.benchmarks import made


def test_a_cell_gets_as_many_weights_as_the_reference(monkeypatch):
  get = cells.text
  narrow = {'model.width': 16}
  wanted = cells.weights(cells.sized(get, cells.REFERENCE, '', narrow))
  raw = cells.sized(get, 'gru', 'state_width', narrow)
  assert abs(cells.weights(raw) - wanted) <= 0.02 * wanted
  raw.cell.state_width += 3
  assert abs(cells.weights(raw) - wanted) > 0.02 * wanted
  monkeypatch.setattr(cells, 'WIDEST', 6)
  with pytest.raises(RuntimeError, match='gru: .* weights, not about'):
    cells.sized(get, 'gru', 'state_width', narrow)


@pytest.mark.parametrize(
  ('what', 'config'),
  (('training', cells.text), ('recall', recall.get_config)),
  ids=('training', 'recall'),
)
def test_the_dragon_hatchling_is_in_its_own_block(what, config):
  listed = {case.name: case for case in cells.cases(False)}
  case = listed[f'bdh, normed: {what}, 0.001']
  assert case.workload == f'suites.cells.{what}'
  raw = cells.sized(config, **case.parameters['model'])
  wanted = cells.weights(config(cells.REFERENCE))
  assert abs(cells.weights(raw) - wanted) <= 0.03 * wanted
  parsed = config_lib.parse(raw)
  assert parsed.model.block == 'normed' and not parsed.data.carry_state
  assert parsed.optimizer.learning_rate == 1e-3
  # The reference and the config's own rate are as they were.
  assert not listed[f'gru: {what}'].parameters['model']['overrides']
  assert config('gru').optimizer.learning_rate == cells.RATES[0]


def test_a_hybrid_has_a_pattern_and_its_size_is_searched(monkeypatch):
  # What a search finds; that it is within 3 % is checked.
  monkeypatch.setattr(cells, '_nearest', lambda count, wanted: 32)
  listed = {case.name: case for case in cells.cases(False)}
  given = listed['gated_deltanet, hybrid: recall'].parameters['model']
  raw = cells.sized(recall.get_config, **json.loads(json.dumps(given)))
  assert raw.model.cells == ('gated_deltanet', 'gated_deltanet', 'attention')
  assert raw.cell.gated_deltanet.value_width == 32
  assert cells._size(raw, given)['size'] == 32


@pytest.mark.parametrize('wanted', (1, 6, 7, 999, 2000, 9_999, 10**9))
def test_the_nearest_count_is_that_of_a_search_of_all(wanted, monkeypatch):
  monkeypatch.setattr(cells, 'WIDEST', 64)
  for count in (
    lambda n: 3 + 2 * n + n * n,
    lambda n: 10 * n,
    lambda n: n * n + 40 * (n > 30),  # no parabola
  ):
    all_of = [abs(count(n) - wanted) for n in range(1, 65)]
    nearest = cells._nearest(count, wanted)
    assert abs(count(nearest) - wanted) == min(all_of)


def test_a_few_counts_are_enough(monkeypatch):
  asked = []

  def count(n):
    asked.append(n)
    return 100 + 7 * n + 4 * n * n

  assert cells._nearest(count, 40_000) == 99
  assert len({*asked}) == 5


def test_a_curve_has_the_means_between_its_points():
  assert cells._curve([1.0, 3.0]) == [[1, 1.0], [2, 3.0]]
  curve = cells._curve([float(n) for n in range(43)])
  assert curve[:2] == [[3, 1.0], [6, 4.0]] and curve[-1][0] == 42


def test_the_report_puts_three_rows_in_a_line(tmp_path):
  held_out = {'exact': 0.75, 'accuracy': 0.75, 'loss': 1.5}
  given = {'steps': 200, 'data': 'shakespeare', 'distance': 16}
  sizes = {'size': 155, 'weights': 1234, 'held_out': held_out}
  curve = {'curve': [[10, 3.0], [20, 2.0]]}
  speed = {'tokens_per_second': 5000.0, 'temp_bytes': 2**21}
  better = sizes | curve | speed | {'held_out': {'loss': 1.25}}
  better['tokens_per_second'] = 6000.0
  rows = [
    made.row('gru: training', 0.5, parameters=given, **sizes, **curve, **speed),
    made.row('gru: training, 0.001', 0.4, parameters=given, **better),
    made.row('gru: decoding', 2e-4, state_bytes=2048) | {'min': 1e-4},
    made.row('gru: recall', 0.5, parameters=given, **sizes),
    made.failed('lstm: training', 'exit code 1'),
  ]
  text = made.section(tmp_path, 'cells', rows)
  line = '| gru | 155 | 1,234 | 0.001 | 1.250 | 0.003: 1.500 | 6,000 | 2.00 MiB'
  assert f'{line} | 100 µs | 2.0 KiB | 75.0 % |' in text
  assert 'Medians of the latencies are 2 to 2 times the least' in text
  assert f'| lstm |{" - |" * 10}' in text
  assert 'lstm: training: exit code' in text
  assert 'Not measured yet: ' in text and 'qrnn, ' in text
  assert '200 steps on shakespeare' in text and 'at distance 16' in text
  assert (tmp_path / 'plots' / 'cells_cpu_loss.png').exists()


def test_speeds_are_of_the_last_machine_and_losses_of_any(tmp_path):
  def trained(cell, loss, device):
    sizes = {'size': 8, 'weights': 99, 'held_out': {'loss': loss}}
    speed = {'tokens_per_second': 5000.0, 'temp_bytes': 2**21, 'floor': 0.5}
    given = {'steps': 200, 'data': 'shakespeare'}
    row = made.row(f'{cell}: training', 0.5, parameters=given, **sizes, **speed)
    return row | {'device': device}

  rows = [
    trained('gru', 1.5, 'one'),
    trained('lstm', 1.25, 'one'),
    trained('gru', 1.75, 'other'),
    trained('of old', 1.0, 'other'),
  ]
  text = made.section(tmp_path, 'cells', rows)
  assert '| gru | 8 | 99 | 0.003 | 1.750 | - | 5,000 | 2.00 MiB |' in text
  assert '| lstm | 8 | 99 | 0.003 | 1.250 | - | - | - |' in text
  assert 'of old' not in text and '1 of 2 rows, marked' in text
