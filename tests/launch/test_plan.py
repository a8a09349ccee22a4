"""`python -m launch.plan` as a user types it."""

import json

import pytest

from tests import tiny

pytestmark = pytest.mark.slow


def plan(folder, raw, *flags):
  config = tiny.write_config(folder / 'config.py', raw)
  return tiny.finish(tiny.launch('plan', f'--config={config}', *flags))


def test_a_plan_for_sixteen_devices(tmp_path):
  raw = tiny.raw_config('no dataset is read')
  flags = '--mesh=data=8,fsdp=2', '--devices=16', '--rows=32', '--device=h200'
  code, out, err = plan(tmp_path, raw, *flags, '--json')
  assert code == 0, err
  found = json.loads(out)
  assert found['devices'] == 16
  assert found['mesh']['data'] == 8
  assert set(found['seconds']['sending']) == {'data', 'fsdp', 'data+fsdp'}
  assert 0 < found['seconds']['overlapped'] < found['seconds']['step']
  tokens = 32 * 32 / found['seconds']['step']
  assert found['tokens_per_second'][0] == pytest.approx(tokens)
  assert found['memory']['fits']


def test_a_mesh_is_searched_for_and_real_steps_run_beside(tmp_path):
  raw = tiny.raw_config('no dataset is read')
  raw.model.layers = 1
  flags = '--devices=2', '--rows=8', '--device=cpu', '--confirm'
  code, out, err = plan(tmp_path, raw, *flags)
  assert code == 0, err
  assert ': 2 x cpu, compiled in ' in out
  assert 'GiB, 90% usable: fits' in out
  assert '4 meshes; why not' in out
  assert 'it must divide model.layers=1' in out
  rows = {line[:16].strip(): line.split() for line in out.splitlines()}
  assert rows['state and batch'][-2:] == ['1', 'times']
  assert float(rows['a step'][-2]) > 0 < float(rows['peak of memory'][-2])


@pytest.mark.parametrize(
  ('flags', 'message'),
  (
    ([], "--device='': choose of h100, h200, a100, v5e, cpu"),
    (['--device=b300'], "--device='b300': choose of h100"),
    (['--device=h100'], '--mesh and --devices are missing'),
    (['--device=h100', '--mesh=data:8'], "'data:8': write AXIS=SIZE"),
    (['--device=h100', '--mesh=rows=8'], "'rows=8': write AXIS=SIZE"),
    (['--device=h100', '--mesh=data=0'], "'data=0': write AXIS=SIZE"),
    (
      ['--device=h100', '--mesh=data=2,data=4'],
      '--mesh=data=2,data=4: data comes twice',
    ),
    (
      ['--device=h100', '--mesh=data=8,fsdp=4', '--devices=16'],
      '--devices=16: --mesh=data=8,fsdp=4 makes up 32',
    ),
    (
      ['--device=h100', '--mesh=data=16', '--rows=40'],
      '= 16 must divide them: give --rows=32 or 48',
    ),
    (
      ['--device=h100', '--mesh=data=16'],
      '8 row(s) by the config: data x fsdp x micro-batches x train.accumulate '
      '= 16 must divide them: give --rows=16',
    ),
    (
      ['--device=h100', '--mesh=data=2,tensor=4', '--rows=8'],
      'mesh.tensor=4: it must divide cell.heads=2',
    ),
    (
      ['--device=h100', '--devices=2', '--config.mesh.pipe=-1'],
      'mesh.data and mesh.pipe are both -1',
    ),
    (['--device=h100', '--devices=2', '--efficiency=0'], '--efficiency=0.0'),
  ),
)
def test_bad_input_is_one_line(tmp_path, flags, message):
  code, out, err = plan(tmp_path, tiny.raw_config(''), *flags)
  assert (code, out) == (1, '')
  lines = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(lines) == 1, err
  assert message in lines[0]
  assert 'Traceback' not in err
