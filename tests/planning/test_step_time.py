"""What several GPUs send in a handwritten program, and what hides it."""

import dataclasses

import pytest

from rnn_jax.planning import step_time
from rnn_jax.profiling import costs
from rnn_jax.profiling import hlo
from rnn_jax.profiling import kernel_times
from rnn_jax.system import devices
from tests.profiling import test_sent

# 1 byte per second to another device of the node.
DEVICE = dataclasses.replace(devices.KNOWN['h100'], inside=1.0, across=0.1)


def kernel(name, runs, seconds):
  return kernel_times.Kernel(
    name, 'matmuls', 'memory', '', runs, costs.NOTHING, 0.0, seconds
  )


def test_what_no_kernel_hides_is_added():
  kernels = [kernel('f.1', 3, 36.0), kernel('c', 1, 7.0)]
  found = step_time.of(
    hlo.Program(test_sent.SCHEDULED), kernels, test_sent.SIZES, DEVICE
  )
  # Of the sums along data, 32 bytes in each of three turns, beside 12 s; of a
  # scatter along tensor 16 bytes beside 7 s; a gather and a sum wait, 32 each.
  assert found.sending == {'data': 96.0, 'tensor': 16.0 + 32.0 + 32.0}
  assert found.exposed == {'data': 96.0 - 36.0, 'tensor': 9.0 + 32.0 + 32.0}
  assert found.step == pytest.approx(43.0 + 60.0 + 73.0)


def test_a_loop_beside_a_collective_hides_as_long_as_its_turns():
  text = test_sent.SCHEDULED.replace(
    '  ROOT %r = f32[8]{0} all-reduce(%w)',
    '  %s.9 = f32[8]{0} all-reduce-start(%x), replica_groups={{0,1},{2,3}}, '
    'to_apply=%sum\n'
    '  %w.9 = f32[8]{0} while(%x), condition=%again, body=%layer, '
    'backend_config={"known_trip_count":{"n":"2"}}\n'
    '  %d.9 = f32[8]{0} all-reduce-done(%s.9)\n'
    '  ROOT %r = f32[8]{0} all-reduce(%w)',
  )
  kernels = [kernel('f.1', 5, 50.0)]
  found = step_time.of(hlo.Program(text), kernels, test_sent.SIZES, DEVICE)
  # 32 bytes beside two turns of 10 s; a scatter without a kernel beside it.
  assert found.exposed['tensor'] == pytest.approx(12.0 + 16.0 + 32.0 + 32.0)
