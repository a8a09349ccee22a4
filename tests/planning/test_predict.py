"""Predictions from made-up numbers, by hand."""

import dataclasses
import math

import pytest

from rnn_jax import errors
from rnn_jax.planning import predict
from rnn_jax.planning import program
from rnn_jax.profiling import sent
from rnn_jax.system import devices
from rnn_jax.system import target

# 1 Tera operations, 10 bytes, 100 bytes and 1,000 and 10 bytes per second.
DEVICE = devices.Device(
  name='made',
  peaks={'float32': 1e12, 'bfloat16': 4e12},
  memory=1e6,
  memory_bandwidth=100.0,
  inside=1000.0,
  across=10.0,
  node=8,
)
MADE = program.Program(
  sizes=(4, 4, 1, 1, 1, 2),
  rows=32,
  length=10,
  parameters=7,
  flops={'float32': 2e12, 'bfloat16': 4e12},
  sent=(
    sent.Sent('all-gather', ('fsdp',), 500.0, 3, 500.0, math.inf, 0),
    sent.Sent('reduce-scatter', ('fsdp',), 500.0, 3, 500.0, math.inf, 0),
    sent.Sent('all-reduce', ('data',), 30.0, 1, 30.0, math.inf, 0),
    sent.Sent('all-reduce', ('tensor',), 2000.0, 1, 0.0, math.inf, 0),
  ),
  memory=target.Memory(100, 800_000, 0),
  bubble=0.0,
  seconds=1.0,
)


def test_work_is_the_longer_of_computing_and_memory():
  flops = MADE.flops
  # 2 s of float32 and 1 s of bfloat16 at half of the peak; 200 bytes in 2 s.
  assert predict.work(flops, 100, DEVICE, 0.5) == 6
  assert predict.work(flops, 5000, DEVICE, 0.5) == 100


@pytest.mark.parametrize(
  ('along', 'expected'),
  (
    (('tensor',), 1000),
    (('fsdp',), 1000),  # 4 neighbours at a distance of 2: one node of 8
    (('fsdp', 'tensor'), 1000),
    (('data',), 10),
    (('data', 'tensor'), 10),
    ((), 1000),
  ),
)
def test_the_slowest_link_that_a_group_spans(along, expected):
  assert predict.link(along, MADE.sizes, DEVICE) == expected


def test_a_small_group_can_still_span_nodes():
  nodes_of_three = dataclasses.replace(DEVICE, node=3)
  # Devices 2 and 3 are neighbours along tensor, in different nodes.
  assert predict.link(('tensor',), MADE.sizes, nodes_of_three) == 10


def test_a_step_with_and_without_overlap():
  prediction = predict.predict(MADE, DEVICE, baseline=96.0, efficiency=0.5)
  assert prediction.work == 6
  assert prediction.sending == {'fsdp': 1.0, 'data': 3.0, 'tensor': 2.0}
  assert prediction.step == 6 + 1 + 3 + 2
  assert prediction.overlapped == 6 + 2
  assert prediction.tokens == (320 / 12, 320 / 8)
  assert prediction.scaling == (96 / (32 * 12), 96 / (32 * 8))
  assert prediction.memory == 800_100
  assert prediction.fits
  # Slow enough to outlast the work that hides it.
  slow = dataclasses.replace(DEVICE, across=2.0)
  prediction = predict.predict(MADE, slow, baseline=96.0, efficiency=0.5)
  assert prediction.overlapped == (1 + 15) + 2


def test_what_the_schedule_has_beside_nothing_is_waited_for():
  both = sent.Sent('all-reduce', ('data',), 30.0, 2, 10.0, 500.0, 0)
  made = dataclasses.replace(MADE, sent=(both,))
  prediction = predict.predict(made, DEVICE, baseline=96.0, efficiency=0.5)
  assert (prediction.step, prediction.overlapped) == (6 + 3, 6 + 2)


@pytest.mark.parametrize(
  ('traffic', 'flops'),
  (
    (50.0, 0),  # at 100 bytes per second
    (0.0, 1e12),  # at half of the 4 Tera of bfloat16
    (50.0, 0.1e12),
  ),
)
def test_computation_hides_no_more_than_its_own_time(traffic, flops):
  one = sent.Sent('all-reduce', ('data',), 30.0, 2, 10.0, traffic, flops)
  made = dataclasses.replace(MADE, sent=(one,))
  prediction = predict.predict(made, DEVICE, baseline=96.0, efficiency=0.5)
  assert prediction.overlapped == 6 + 3 - 0.5


def test_a_tenth_of_the_memory_is_not_for_the_program():
  full = target.Memory(100_000, 800_001, 0)
  made = dataclasses.replace(MADE, memory=full)
  assert not predict.predict(made, DEVICE, 1.0).fits


def test_a_format_without_a_peak_is_refused():
  with pytest.raises(errors.InputError, match='made.*no peak of int8'):
    predict.work({'int8': 1.0}, 0, DEVICE)


def test_known_devices_have_the_figures_of_their_sheets():
  """Ratios that the data sheets state, of figures that are written once."""
  h100, h200, a100, v5e = (
    devices.KNOWN[name] for name in ('h100', 'h200', 'a100', 'v5e')
  )
  assert h100.peaks == h200.peaks
  assert h200.memory_bandwidth / h100.memory_bandwidth == pytest.approx(
    1.43, 0.01
  )
  for gpu in (h100, a100):  # bfloat16 is twice TF32, int8 twice bfloat16
    assert gpu.peaks['bfloat16'] == pytest.approx(2 * gpu.peaks['tf32'], 0.01)
    assert gpu.peaks['int8'] == pytest.approx(2 * gpu.peaks['bfloat16'], 0.01)
  # All-reduce bandwidth of a pod, 51.2 TB/s: two rings for each chip.
  assert 2 * v5e.node * v5e.inside == pytest.approx(51.2e12, 0.01)


def test_this_machine_is_shared_equally(monkeypatch):
  monkeypatch.setattr(devices, 'SIZE', 64)
  monkeypatch.setattr(devices, 'COPIED', 1000)
  # Timings vary; memory does not.
  one, four = devices.measured(1), devices.measured(4)
  assert one.memory == 4 * four.memory
  assert min(one.peaks.values()) > 0 < one.memory_bandwidth
