"""`python -m launch.profile` as a user types it."""

import json

import pytest

from tests import tiny

pytestmark = pytest.mark.slow


def profile(folder, raw, *flags):
  config = tiny.write_config(folder / 'config.py', raw)
  return tiny.finish(tiny.launch('profile', f'--config={config}', *flags))


def test_a_profile_names_memory_time_and_modules(tmp_path):
  raw = tiny.raw_config('no dataset is read')
  flags = f'--workdir={tmp_path}/out', '--steps=3', '--rows=6', '--length=48'
  code, out, err = profile(tmp_path, raw, *flags)
  assert code == 0, err
  assert out.startswith('# Profile of a training step\n\n6 rows of 48 tokens')
  assert (tmp_path / 'out/profile.md').read_text().startswith(out)
  assert (tmp_path / 'out/profile.png').stat().st_size > 1000
  found = json.loads((tmp_path / 'out/profile.json').read_text())
  assert found['subject']['length'] == 48
  assert len(found['time']['seconds_with_trace']) == 3
  traced = tmp_path / 'out' / found['trace']['file']
  assert traced.suffixes == ['.xplane', '.pb']
  assert list(traced.parent.glob('*.trace.json.gz'))  # Perfetto reads it
  assert 0 < found['trace']['busy_share'] <= 1
  modules = {row['module'] for row in found['trace']['operations']}
  modules |= {row['name'] for row in found['trace']['modules']}
  assert any('stack' in name and '(backward)' in name for name in modules)
  assert len(found['buffers']) == 10
  assert any('stack' in row['module'] for row in found['buffers'])


@pytest.mark.parametrize(
  ('flags', 'message'),
  (
    ([], '--workdir is missing'),
    (['--workdir=/dev/null/x'], '--workdir=/dev/null/x: '),
    (['--workdir=x', '--steps=0'], 'steps'),
    (
      ['--workdir=x', '--rows=3', '--config.train.accumulate=2'],
      '--rows=3: give a multiple of devices x train.accumulate = 2',
    ),
  ),
)
def test_bad_input_is_one_line(tmp_path, flags, message):
  code, out, err = profile(tmp_path, tiny.raw_config(''), *flags)
  assert (code, out) == (1, '')
  lines = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(lines) == 1, err
  assert message in lines[0]
  assert 'Traceback' not in err
