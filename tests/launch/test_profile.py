"""`launch.profile`: a report as a user gets it, and what it refuses."""

import json

import pytest

from tests.support import launchers
from tests.support import tiny

pytestmark = pytest.mark.slow


def test_a_profile_names_memory_time_and_modules(tmp_path):
  raw = tiny.raw_config('no dataset is read')
  flags = f'--workdir={tmp_path}/out', '--steps=3', '--rows=6', '--length=48'
  config = tiny.write_config(tmp_path / 'config.py', raw)
  code, out, err = launchers.run('profile', f'--config={config}', *flags)
  assert code == 0, err
  assert out.startswith('# Profile of a training step\n\n6 rows of 48 tokens')
  assert (tmp_path / 'out/profile.md').read_text().startswith(out)
  assert (tmp_path / 'out/profile.png').stat().st_size > 1000
  report = json.loads((tmp_path / 'out/profile.json').read_text())
  assert report['workload']['length'] == 48
  assert len(report['time']['seconds_with_trace']) == 3
  traced = tmp_path / 'out' / report['trace']['file']
  assert traced.suffixes == ['.xplane', '.pb']
  assert list(traced.parent.glob('*.trace.json.gz'))  # Perfetto reads it
  assert 0 < report['trace']['busy_share'] <= 1
  modules = {row['module'] for row in report['trace']['operations']}
  modules |= {row['name'] for row in report['trace']['modules']}
  assert any('stack' in name and '(backward)' in name for name in modules)
  assert len(report['buffers']) == 10
  assert any('stack' in row['module'] for row in report['buffers'])


@pytest.mark.cuda
def test_a_profile_for_a_gpu_that_is_not_attached(tmp_path):
  raw = tiny.raw_config('no dataset is read')
  config = tiny.write_config(tmp_path / 'config.py', raw)
  code, out, err = launchers.run(
    'profile',
    f'--config={config}',
    f'--workdir={tmp_path}/out',
    '--target=b200',
    '--config.mesh.fsdp=4',
  )
  assert code == 0, err
  assert '4 x NVIDIA B200' in out
  report = json.loads((tmp_path / 'out/profile.json').read_text())
  # All is sharded by four, but what has no axis of model width.
  arrays, step = report['memory']['arrays'], report['memory']['programs']
  state = arrays['parameters'] + arrays['optimizer state']
  assert state / 4 < step['training step']['arguments'] < state / 2
  assert {tuple(part['axes']) for part in report['sent']} == {('fsdp',)}
  assert all(part['beside'] <= part['bytes'] for part in report['sent'])
  assert len(report['kernels']) > 10
  assert 'trace' not in report
  assert '## Kernels' in out
  assert '## Time\n' not in out
  predicted = report['predicted']
  assert '## Time of the kernels on NVIDIA B200: predicted' in out
  assert 'Predicted, not measured: ' in out and 'Sending is left out.' in out
  assert 0 < predicted['limit_seconds'] < predicted['seconds']
  assert {'matmuls', 'recurrence', 'loss', 'optimizer'} <= {*predicted['parts']}


@pytest.mark.parametrize(
  ('flags', 'message'),
  (
    ([], '--workdir is missing'),
    (['--workdir=/dev/null/x'], '--workdir=/dev/null/x: '),
    (['--workdir=x', '--steps=0'], 'steps'),
    (['--workdir=x', '--steps=9', '--target=l4'], '--steps=9: no steps run'),
    (
      ['--workdir=x', '--rows=3', '--config.train.accumulate=2'],
      '--rows=3: give a multiple of devices x train.accumulate = 2',
    ),
  ),
)
def test_bad_input_is_one_line(tmp_path, flags, message):
  config = tiny.write_config(tmp_path / 'config.py', tiny.raw_config(''))
  code, out, err = launchers.run('profile', f'--config={config}', *flags)
  assert (code, out) == (1, '')
  lines = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(lines) == 1, err
  assert message in lines[0]
  assert 'Traceback' not in err
