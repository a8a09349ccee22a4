"""Times of kernels from made-up figures, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.profiling import costs
from rnn_jax.profiling import hlo
from rnn_jax.profiling import kernel_times
from rnn_jax.system import devices

# 100 bytes, 10 operations of float32 and 40 of bfloat16 per second.
DEVICE = dataclasses.replace(
  devices.KNOWN['h100'],
  peaks={'float32': 10.0, 'bfloat16': 40.0},
  memory_bandwidth=100.0,
)
TEXT = """HloModule jit_train, is_scheduled=true

FileNames
1 "/a/rnn_jax/rnn_jax/ops/gla/mosaic/tiles.py"
2 "/a/site-packages/optax/_src/update.py"
3 "/a/rnn_jax/rnn_jax/models/blocks.py"

FunctionNames
1 "run"

FileLocations
1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 end_column=2}
2 {file_name_id=2 function_name_id=1 line=1 end_line=1 column=1 end_column=2}
3 {file_name_id=3 function_name_id=1 line=1 end_line=1 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=3 parent_frame_id=1}

ENTRY %main (x: f32[100], w: bf16[4,4]) -> f32[100] {
  %x = f32[100]{0} parameter(0)
  %w = bf16[4,4]{1,0} parameter(1)
  %kernel.1 = f32[100]{0} custom-call(%x), custom_call_target="mosaic_gpu_v2", \
metadata={op_name="jit(train)/jvp(M.f)/stack/cell/pallas_call" stack_frame_id=1}
  %norm.1 = f32[100]{0} multiply(%kernel.1, %x), \
metadata={op_name="jit(train)/jvp(M.f)/stack/cell_norm/mul" stack_frame_id=3}
  %gate.1 = f32[100]{0} tanh(%norm.1), \
metadata={op_name="jit(train)/jvp(M.f)/stack/cell/tanh" stack_frame_id=3}
  %dot.1 = bf16[4,4]{1,0} dot(%w, %w), lhs_contracting_dims={1}, \
metadata={op_name="jit(train)/jvp(M.f)/stack/mlp/up/dot" stack_frame_id=3}
  %copy.1 = f32[100]{0} copy(%gate.1), \
metadata={op_name="jit(train)/jvp(M.f)/stack/mlp/up/dot" stack_frame_id=3}
  %sent.1 = f32[100]{0} all-reduce(%copy.1), replica_groups={}
  ROOT %step.1 = f32[100]{0} add(%sent.1, %x), \
metadata={op_name="jit(train)/add" stack_frame_id=2}
}
"""


@pytest.fixture(name='kernels', scope='module')
def _kernels():
  made = {('f32[100]',): costs.Cost(0, {'float32': 90.0}, 0)}
  return kernel_times.of(hlo.Program(TEXT), DEVICE, made)


def test_each_kernel_has_its_part_and_kind(kernels):
  found = {one.name: (one.part, one.kind) for one in kernels}
  assert found == {
    'kernel.1': ('recurrence', 'kernel'),
    'norm.1': ('norms', 'memory'),
    'gate.1': ('gates and activations', 'memory'),
    'dot.1': ('matmuls', 'matmul'),
    'copy.1': ('copies and casts', 'memory'),
    'step.1': ('optimizer', 'memory'),
  }
  assert {part for part, _ in found.values()} <= {*kernel_times.PARTS}


def test_the_limit_is_the_slowest_of_three(kernels):
  limits = {one.name: one.limit for one in kernels}
  assert limits == {
    'kernel.1': 90 / 10,
    'norm.1': 100 / 5,  # more than 1200 / 100
    'gate.1': 8 * 100 / 5,
    'dot.1': 2 * 64 / 40,
    'copy.1': 8.0,
    'step.1': 20.0,
  }
  assert [*limits][0] == 'gate.1'
  for one in kernels:
    share = kernel_times.SHARES[one.kind]
    assert one.seconds == one.limit / share + kernel_times.LAUNCH


def test_a_summary_adds_up(kernels):
  found = kernel_times.summary(kernels, DEVICE, tokens=30, weights=7)
  seconds = sum(one.seconds for one in kernels)
  assert found['seconds'] == pytest.approx(seconds)
  assert found['launches'] == 6
  assert found['tokens_per_second'] == pytest.approx(30 / seconds)
  assert found['mfu'] == pytest.approx(6 * 7 * 30 / (seconds * 40))
  assert found['mbu'] == pytest.approx(found['bytes'] / (seconds * 100))
  for key in ('parts', 'kinds'):
    for value in ('seconds', 'bytes', 'products', 'launches'):
      parts = sum(part[value] for part in found[key].values())
      assert parts == pytest.approx(found[value])
  assert found['slowest'][0]['name'] == 'gate.1'


def test_an_embedding_is_no_matrix_unless_it_is_the_head():
  params = {
    'embedding': {'embedding': jnp.zeros((5, 2))},
    'embedding_norm': {'scale': jnp.zeros(2)},
    'head': {'kernel': jnp.zeros((2, 5))},
  }
  like = jax.eval_shape(lambda: params)
  assert kernel_times.matrix_weights(like, False) == 12
  assert kernel_times.matrix_weights(like, True) == 22
