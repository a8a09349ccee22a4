"""A made-up profile in all its formats."""

import json

import pytest
from matplotlib import image

from rnn_jax import tables
from rnn_jax.profiling import hlo
from rnn_jax.profiling import modules
from rnn_jax.profiling import parts
from rnn_jax.profiling import profile as profile_lib
from rnn_jax.profiling import report
from rnn_jax.profiling import trace
from tests.profiling import test_hlo

MIB = 2**20


@pytest.fixture(name='profile')
def _profile():
  program = hlo.Program(test_hlo.TEXT)
  events = [
    trace.Event('while.1', 0, 8e6),
    trace.Event('dot.1', 0, 2e6),
    trace.Event('dot.1', 4e6, 6e6),
    trace.Event('fusion_1', 1e6, 3e6),  # as a GPU's kernel is named
    trace.Event('memcpy', 9e6, 9.5e6),
  ]
  size = {'arguments': MIB, 'temporaries': 2 * MIB, 'outputs': 0}
  size['total'] = 3 * MIB
  names = parts.FORWARD, parts.BACKWARD, parts.STEP
  return {
    'workload': {'description': 'rows of 8 tokens', 'rows': 4, 'length': 8},
    'memory': {
      'arrays': {'parameters': MIB, 'gradients': MIB},
      'kept_for_backward': 3 * MIB // 2,
      'programs': dict.fromkeys(names, size),
      'device': {'source': 'device', 'peak_bytes': 4 * MIB},
    },
    'sent': [],
    'cost': dict.fromkeys(names, {'flops': 2e9, 'bytes': None}),
    'time': {
      'steps': 2,
      'median': 0.004,
      'compile_seconds': 2.5,
      'seconds': [0.004, 0.004],
      'seconds_with_trace': [0.005, 0.005],
    },
    'trace': {'file': 'trace/x.xplane.pb'}
    | profile_lib.describe(events, program, [0.005, 0.005]),
    'buffers': [
      {'bytes': MIB, 'array': 'f32[8]', 'operation': 'dot.1', 'module': 'a/b'}
    ],
  }


def test_shares_and_sums_leave_out_what_contains_others(profile):
  result = profile['trace']
  # Busy from 0 to 3, 4 to 6 and 9 to 9.5 of 10 ms; 6.5 ms of operations.
  assert result['busy_share'] == pytest.approx(0.55)
  dot, fusion, copy = result['operations']
  assert dot == {
    'name': 'dot.1',
    'seconds_per_step': pytest.approx(0.002),
    'times_per_step': 1,
    'share': pytest.approx(4 / 6.5),
    'module': 'stack/cell/out (backward)',
  }
  assert fusion['module'] == 'stack/cell'
  assert (copy['name'], copy['module']) == ('memcpy', modules.NOBODY)
  assert sum(row['share'] for row in result['modules']) == pytest.approx(1)


def test_the_text_has_every_part(profile):
  text = report.markdown(profile)
  for line in (
    '4 rows of 8 tokens',
    '| parameters              | 1.00 |',
    '| kept for backward       | 1.50 |',
    '| peak by device          | 4.00 |',
    '| training step      |      1.00 |        2.00 |    0.00 |  3.00 |',
    '4 ms per step (median of 2), 8,000 tokens/s; 5 ms while traced.',
    'The device was busy for 55.0% of the traced steps.',
    '|       2.000 |     1 | 61.5% | dot.1     | stack/cell/out (backward) |',
    '| 1.00 | f32[8] | dot.1     | a/b    |',
  ):
    assert line in text, line
  assert all(len(line) < 160 for line in text.splitlines())


def test_a_profile_of_a_target_says_that_its_times_are_predicted(profile):
  del profile['trace'], profile['memory']['device']
  part = {
    'launches': 12,
    'bytes': 3e9,
    'products': 4e12,
    'limit_seconds': 0.002,
    'seconds': 0.004,
  }
  profile['workload']['device'] = {'kind': 'NVIDIA H100', 'count': 2}
  profile['kernels'] = []
  profile['predicted'] = part | {
    'tokens_per_second': 12_345.6,
    'mfu': 0.51,
    'mbu': 0.22,
    'error': (0.1, 0.35),
    'parts': {'loss': part},
    'slowest': [{'name': 'dot.1', 'part': 'loss', 'module': 'head', **part}],
  }
  text = report.markdown(profile)
  for line in (
    '## Time of the kernels on NVIDIA H100: predicted',
    '| loss |       12 | 3.00 |  4.00 |            2.00 |         4.00 | 100',
    'Predicted, not measured: 12,346 tokens/s of a device, MFU 51%, MBU 22%.',
    'off by 10% (median), 35% at most. Sending is left out.',
  ):
    assert line in text, text


def test_the_files_are_written(profile, tmp_path):
  text = report.write(profile, tmp_path)
  assert json.loads((tmp_path / 'profile.json').read_text()) == profile
  written = (tmp_path / 'profile.md').read_text()
  assert written.startswith(text)
  assert '(profile.png)' in written
  height, width, _ = image.imread(tmp_path / 'profile.png').shape
  assert width > 1000 and height > 200


def test_an_empty_table_is_its_header():
  assert tables.aligned(('a', 'b'), []) == ['| a | b |', '| - | - |']
