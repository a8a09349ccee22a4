"""Programs of virtual devices: what they send, compute and hold, by hand."""

import json
import math
import os
import subprocess
import sys

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.planning import program
from rnn_jax.planning import search
from tests import tiny


@pytest.fixture(name='told', scope='module')
def _told():
  command = [sys.executable, '-m', 'tests.planning.programs']
  environment = {**os.environ, 'JAX_COMPILATION_CACHE_DIR': ''}
  found = subprocess.run(
    command,
    check=False,
    cwd=tiny.ROOT,
    env=environment,
    capture_output=True,
    text=True,
  )
  assert found.returncode == 0, found.stderr
  return json.loads(found.stdout)


def sent(told, opcode, axis):
  """Bytes of collectives along one axis alone."""
  return sum(
    size
    for found, axes, size, _ in told['sent']
    if (found, axes) == (opcode, [axis])
  )


def test_a_device_computes_its_share(told):
  one, alone = told['one'], told['alone']
  assert one['flops'] == alone['flops'] > 0
  assert one['sent'] == []
  assert told['fsdp']['flops'] == pytest.approx(one['flops'] / 8)
  # Between an equal share and all of it: what is no head or column is whole.
  assert one['flops'] / 4 <= told['tensor']['flops'] < one['flops'] / 2


def test_work_of_a_bubble_counts(told):
  pipe, one = told['pipe'], told['one']
  assert pipe['bubble'] == pytest.approx(1 / 3)
  # The head is of the last stage alone, but each stage computes it.
  assert pipe['flops'] > one['flops'] / 4 / (1 - pipe['bubble'])


def test_sums_of_gradients_are_those_of_the_parameters(told):
  """Ring of n: an all-reduce 2 (n - 1) / n, others (n - 1) / n of it."""
  found = told['fsdp']
  whole = 4 * found['parameters']
  # What has no axis of model width is not cut, nor scattered.
  assert sent(found, 'reduce-scatter', 'fsdp') <= whole / 2
  assert sent(found, 'reduce-scatter', 'fsdp') > 0.9 * whole / 2
  assert sent(found, 'all-gather', 'fsdp') >= 0.9 * whole / 2
  along_data = sent(found, 'all-reduce', 'data')
  assert 0.9 <= along_data / (2 * 3 / 4 * whole / 2) <= 1.05


def test_activations_go_along_tensor_and_pipe(told):
  assert sent(told['tensor'], 'all-reduce', 'tensor') > 0
  assert sent(told['pipe'], 'collective-permute', 'pipe') > 0
  for name in ('fsdp', 'pipe'):
    assert not any('tensor' in axes for _, axes, _, _ in told[name]['sent'])


def test_predicted_arguments_are_the_buffers_of_a_device(told):
  for name in ('one', 'fsdp', 'tensor', 'pipe'):
    found = told[name]
    assert found['arguments'] == found['held'] < found['memory']


def test_a_search_judges_all_meshes_and_compiles_the_best(told):
  found = told['search']
  assert len(found['candidates']) == math.comb(4 + 3, 3)
  refused = {
    tuple(sizes.values()): why for sizes, why in found['candidates'] if why
  }
  assert 'mesh.pipe=4: it must divide model.layers=2' in refused[4, 1, 4, 1]
  assert 'it must divide cell.heads=2' in refused[4, 1, 1, 4]
  assert math.prod(found['best']) == 16
  # The estimate leaves out small things: 30 % are measured for a tiny model.
  assert found['estimate'] == pytest.approx(found['predicted'], rel=0.6)


def test_a_promoted_sum_sends_sixteen_bits():
  text = """HloModule made, num_partitions=4

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %a = f32[8]{0} all-reduce(%x), replica_groups={{0,1},{2,3}}, \
to_apply=%region_4.2_promoted
  ROOT %b = f32[8]{0} all-reduce(%a), replica_groups={{0,2},{1,3}}, \
to_apply=%region_4.2
}
"""
  assert program.sent(text, (2, 1, 1, 1, 2)) == (
    ('all-reduce', ('data',), 32.0, 1),
    ('all-reduce', ('tensor',), 16.0, 1),
  )


def test_meshes_share_out_all_devices():
  found = list(search.meshes(12))
  assert {math.prod(sizes.values()) for sizes in found} == {12}
  assert {'data': 3, 'fsdp': 2, 'pipe': 1, 'tensor': 2} in found
  assert len({tuple(sizes.values()) for sizes in found}) == len(found) == 10


def test_rows_that_a_mesh_does_not_divide():
  raw = tiny.raw_config('unused')
  raw.train.accumulate = 4
  made = program.subject(program.alone(config_lib.parse(raw)))
  assert program.rows_of(made, 12) == 12
  assert program.rows_of(made, 0) == 8
  with pytest.raises(errors.InputError, match='--rows=6: .* = 4.*=4 or 8$'):
    program.rows_of(made, 6)
  with pytest.raises(errors.InputError, match='--rows=3: .* = 4.*--rows=4$'):
    program.rows_of(made, 3)


def test_the_meshs_other_keys_hold():
  config = config_lib.parse(tiny.raw_config('unused'))
  found = program.with_mesh(config, {'data': 2, 'fsdp': 2}).mesh
  assert (found.data, found.fsdp, found.pipe, found.tensor) == (2, 2, 1, 1)
  assert found.rules == config.mesh.rules
  with pytest.raises(errors.InputError, match='cell.heads=2'):
    program.with_mesh(config, {'tensor': 4})
