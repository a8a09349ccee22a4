"""A step's memory is the compiler's, and a saving a share of the plain step."""

from benchmarks.suites import memory

SMALL = {
  'model.layers': 1,
  'data.length': 16,
  'cell.window': 8,
  'optimizer.moments': 'int8',
}


def test_a_transformer_s_step_is_counted_and_not_run():
  values = memory.step_memory(['chatgot', 'tiny', SMALL], 2)
  assert values['parameter_bytes'] == 4 * values['weights'] == 4 * 221_401
  # Two moments of 8 bits, their scales, and what stays in 32.
  assert 2 < values['optimizer_bytes'] / values['weights'] < 3
  assert values['total_bytes'] > values['argument_bytes'] > 6 * 221_401
