"""`launch.plan`: plans, real steps for comparison, and what it refuses."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.planning import program
from rnn_jax.profiling import workload
from tests.support import jobs
from tests.support import launchers
from tests.support import tiny
from tests.support import virtual

pytestmark = pytest.mark.slow
EIGHT = '--config.train.accumulate=8'


def test_a_plan_for_eight_devices():
  code, out, err = virtual.call('tests.launch.plans', 'eight')
  assert code == 0, err
  values = json.loads(out)
  assert values['devices'] == 8
  assert values['mesh']['data'] == 4
  assert set(values['seconds']['sending']) == {'data', 'fsdp', 'data+fsdp'}
  assert 0 < values['seconds']['overlapped'] < values['seconds']['step']
  tokens = 32 * 32 / values['seconds']['step']
  assert values['tokens_per_second'][0] == pytest.approx(tokens)
  assert values['memory']['fits']


@pytest.mark.cuda
def test_a_plan_by_the_compiler_of_the_gpu_and_by_the_cpus():
  code, out, err = virtual.call('tests.launch.plans', 'for_a_gpu')
  assert code == 0, err
  values = json.loads(out)
  by_cpu = values['by_cpu']
  assert by_cpu['by_cpu'] is None
  assert values['device'] == by_cpu['device'] == 'h100'
  # Arguments are the state's and the batch's bytes, whoever compiles.
  assert values['memory']['arguments'] == by_cpu['memory']['arguments']
  assert values['memory']['temporaries'] != by_cpu['memory']['temporaries']
  # Gradients of all layers, whoever combines them.
  for plan in (values, by_cpu):
    (scattered,) = [x for x in plan['sent'] if x['opcode'] == 'reduce-scatter']
    assert scattered['bytes'] == pytest.approx(2 * plan['parameters'], rel=0.1)


def test_a_mesh_is_searched_for_and_real_steps_run_beside(tmp_path):
  raw = tiny.raw_config('no dataset is read')
  raw.model.layers = raw.cell.heads = 1
  raw.recurrence.impl = 'scan'  # the smallest program
  flags = '--devices=2', '--rows=8', '--target=cpu', '--confirm'
  config = tiny.write_config(tmp_path / 'config.py', raw)
  # Only a new process can have as many devices.
  process = jobs.Process(
    'plan', f'--config={config}', *flags, env=jobs.environment()
  )
  code, out, err = tiny.finish(process)
  assert code == 0, err
  assert ': 2 x cpu, compiled in ' in out
  assert 'GiB, 90% usable: fits' in out
  assert '4 meshes; why not' in out
  assert 'it must divide model.layers=1' in out
  assert 'it must divide cell.heads=1' in out
  rows = {line[:16].strip(): line.split() for line in out.splitlines()}
  assert rows['state and batch'][-2:] == ['1', 'times']
  assert float(rows['a step'][-2]) > 0 < float(rows['peak of memory'][-2])


@pytest.mark.parametrize(
  ('flags', 'message'),
  (
    ([], "--target='': choose one of h100, h200, b200, a100, l4, v5e, cpu"),
    (['--target=h100', '--confirm'], '--target=h100: --confirm runs steps on'),
    (['--target=b300'], "--target='b300': choose one of h100"),
    (['--target=v5e'], '--mesh and --devices are missing'),
    (['--target=v5e', '--mesh=data:8'], "'data:8': write AXIS=SIZE"),
    (['--target=v5e', '--mesh=rows=8'], "'rows=8': write AXIS=SIZE"),
    (['--target=v5e', '--mesh=data=0'], "'data=0': write AXIS=SIZE"),
    (
      ['--target=v5e', '--mesh=data=2,data=4'],
      '--mesh=data=2,data=4: data is there twice',
    ),
    (
      ['--target=v5e', '--mesh=data=8,fsdp=4', '--devices=16'],
      '--devices=16: --mesh=data=8,fsdp=4 has 32 devices',
    ),
    (
      ['--target=v5e', '--mesh=data=2,tensor=4', '--rows=8'],
      'mesh.tensor=4: it must divide cell.heads=2',
    ),
    (
      ['--target=v5e', '--devices=2', '--config.mesh.pipe=-1'],
      'mesh.data and mesh.pipe are -1: only one',
    ),
    (['--target=v5e', '--devices=2', '--efficiency=0'], '--efficiency=0.0'),
    (
      ['--target=v5e', '--mesh=data=1', EIGHT, '--rows=20'],
      '= 8 must divide them: give --rows=16 or 24',
    ),
  ),
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, flags, message):
  # Only a new process can have as many devices; none of these gets to use them.
  monkeypatch.setattr(program, 'claim', lambda count: None)
  config = tiny.write_config(tmp_path / 'config.py', tiny.raw_config(''))
  code, out, err = launchers.run('plan', f'--config={config}', *flags)
  assert (code, out) == (1, '')
  lines = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(lines) == 1, err
  assert message in lines[0]
  assert 'Traceback' not in err


def test_rows_of_a_config_that_do_not_fit_the_mesh_are_refused():
  config = config_lib.parse(tiny.raw_config(''))
  with pytest.raises(errors.InputError) as raised:
    program.rows_of(workload.Workload(config, None, None, 16), 0)
  assert str(raised.value) == (
    '8 row(s) by the config: data x fsdp x micro-batches x train.accumulate '
    '= 16 must divide them: give --rows=16'
  )
