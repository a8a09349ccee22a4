"""Programs of virtual devices: bytes and operations, by hand."""

import math

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.planning import program
from rnn_jax.planning import search
from tests.support import tiny
from tests.support import virtual


@pytest.fixture(name='counts', scope='module')
def _counts():
  return virtual.call('tests.planning.programs', 'measure')


def sent(counts, opcode, axis):
  """Bytes of collectives along only one axis."""
  return sum(
    size
    for values, axes, size, *_ in counts['sent']
    if (values, axes) == (opcode, (axis,))
  )


def test_a_device_computes_its_share(counts):
  """Layers are cut; the head is not, of 257 entries and in each stage."""
  whole, tokens = counts['one device']['flops'], 32 * 32
  head = 6 * tokens * 16 * 257
  layers = whole - head
  assert counts['fsdp']['flops'] == whole / 8
  assert counts['tensor']['flops'] == layers / 4 + head / 2
  pipe = counts['pipe']
  assert pipe['bubble'] == pytest.approx(1 / 3)
  assert pipe['flops'] == pytest.approx(layers / 4 * 3 / 2 + head / 2)


def test_sums_of_gradients_are_those_of_the_parameters(counts):
  """Ring of n: an all-reduce 2 (n - 1) / n, others (n - 1) / n of it."""
  values = counts['fsdp']
  whole = 4 * values['parameters']
  # What has no axis of model width is not cut, nor scattered.
  assert sent(values, 'reduce-scatter', 'fsdp') <= whole / 2
  assert sent(values, 'reduce-scatter', 'fsdp') > 0.9 * whole / 2
  assert sent(values, 'all-gather', 'fsdp') >= 0.9 * whole / 2
  along_data = sent(values, 'all-reduce', 'data')
  assert 0.9 <= along_data / (2 * 3 / 4 * whole / 2) <= 1.05


def test_activations_go_along_tensor_and_pipe(counts):
  assert sent(counts['tensor'], 'all-reduce', 'tensor') > 0
  assert sent(counts['pipe'], 'collective-permute', 'pipe') > 0
  for name in ('fsdp', 'pipe'):
    assert not any('tensor' in axes for _, axes, *_ in counts[name]['sent'])


def test_predicted_arguments_are_the_buffers_of_a_device(counts):
  for name in ('fsdp', 'tensor', 'pipe'):
    values = counts[name]
    assert values['arguments'] == values['held'] < values['memory']


def test_meshes_are_ranked_by_their_step(counts):
  values = {
    tuple(sizes.values()): rest for sizes, *rest in counts['candidates']
  }
  assert len(values) == math.comb(3 + 3, 3)
  assert 'mesh.pipe=4: it must divide model.layers=2' in values[2, 1, 4, 1][0]
  assert 'mesh.tensor=4: it must divide cell.heads=2' in values[2, 1, 1, 4][0]
  able = [step for refused, step in values.values() if not refused]
  assert able == sorted(able)
  assert [bool(why) for why, _ in values.values()] == sorted(
    bool(why) for why, _ in values.values()
  )
  # 9 % more is measured: what is outside of layers is gathered only once.
  estimated = values[4, 2, 1, 1][1]
  assert estimated == pytest.approx(counts['fsdp']['step'], rel=0.15)


def test_meshes_share_out_all_devices():
  values = list(search.meshes(12))
  assert {math.prod(sizes.values()) for sizes in values} == {12}
  assert {'data': 3, 'fsdp': 2, 'pipe': 1, 'tensor': 2} in values
  assert len({tuple(sizes.values()) for sizes in values}) == len(values) == 10


def test_rows_that_the_mesh_does_not_divide_are_refused():
  raw = tiny.raw_config('unused')
  raw.train.accumulate = 4
  made = program.workload(program.one_device(config_lib.parse(raw)))
  assert program.rows_of(made, 12) == 12
  assert program.rows_of(made, 0) == 8
  with pytest.raises(errors.InputError, match='--rows=6: .* = 4.*=4 or 8$'):
    program.rows_of(made, 6)
  with pytest.raises(errors.InputError, match='--rows=3: .* = 4.*--rows=4$'):
    program.rows_of(made, 3)


def test_the_meshs_other_keys_hold():
  config = config_lib.parse(tiny.raw_config('unused'))
  values = program.with_mesh(config, {'data': 2, 'fsdp': 2}).mesh
  assert (values.data, values.fsdp, values.pipe, values.tensor) == (2, 2, 1, 1)
  assert values.rules == config.mesh.rules
  with pytest.raises(errors.InputError, match='cell.heads=2'):
    program.with_mesh(config, {'tensor': 4})
