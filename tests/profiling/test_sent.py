"""What travels during computation in handwritten programs, by hand."""

import math

from rnn_jax.profiling import costs
from rnn_jax.profiling import hlo
from rnn_jax.profiling import sent
from rnn_jax.system import target

SCHEDULED = """HloModule jit_step, is_scheduled=true, num_partitions=4

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(%a, %b)
}

%scatter (s: f32[8]) -> f32[4] {
  %s = f32[8]{0} parameter(0)
  ROOT %scattered = f32[4]{0} reduce-scatter(%s), replica_groups={{0,1},{2,3}}\
, dimensions={0}, to_apply=%sum
}

%layer (l: f32[8]) -> f32[8] {
  %l = f32[8]{0} parameter(0)
  %s.1 = f32[8]{0} all-reduce-start(%l), replica_groups={{0,2},{1,3}}, \
to_apply=%sum
  %f.1 = f32[8]{0} fusion(%l), kind=kLoop, calls=%sum
  ROOT %d.1 = f32[8]{0} all-reduce-done(%s.1)
}

%again (g: f32[8]) -> pred[] {
  %g = f32[8]{0} parameter(0)
  ROOT %less = pred[] compare(%g, %g), direction=LT
}

ENTRY %main (x: f32[8], y: f32[8], z: f32[4,4]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %z = f32[4,4]{1,0} parameter(2)
  %s.2 = (f32[8]{0}, f32[16]{0}) all-gather-start(%x), \
replica_groups={{0,1},{2,3}}, dimensions={0}
  %t = (f32[8]{0}) tuple(%y)
  %d.2 = f32[16]{0} all-gather-done(%s.2)
  %s.3 = ((f32[8]{0}), f32[4]{0}) async-start(%x), calls=%scatter
  %m = f32[2,4]{1,0} bitcast(%y)
  %c = f32[2,4]{1,0} custom-call(%m, %z), \
custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":\
{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
  %d.3 = f32[4]{0} async-done(%s.3), calls=%scatter
  %w = f32[8]{0} while(%x), condition=%again, body=%layer, \
backend_config={"known_trip_count":{"n":"3"}}
  ROOT %r = f32[8]{0} all-reduce(%w), replica_groups={{0,1},{2,3}}, \
to_apply=%sum
}
"""
SIZES = 2, 1, 1, 1, 1, 2


def test_what_is_between_a_start_and_its_done():
  found = sent.computed_beside(hlo.Program(SCHEDULED))
  assert {name: beside for name, beside in found.items() if beside} == {
    's.1': ('f.1',),
    'scattered': ('c',),
    's': ('c',),
  }
  assert found['s.2'] == found['r'] == ()


def test_a_loop_costs_its_turns():
  # Of three: a fusion of 8 numbers, and a comparison of them.
  found = costs.of(hlo.Program(SCHEDULED), 'w')
  assert found.bytes == 3 * (2 * 32 + 2 * 32 + 1)


def test_bytes_that_travel_beside_computation(monkeypatch):
  monkeypatch.setattr(target, 'platform', lambda: 'gpu')
  assert sent.of(hlo.Program(SCHEDULED), SIZES) == (
    ('all-gather', ('tensor',), 32.0, 1, 0.0, 0, 0),
    # A fusion reads and writes 8 numbers, three times.
    ('all-reduce', ('data',), 3 * 32.0, 3, 3 * 32.0, 3 * 64, 0),
    ('all-reduce', ('tensor',), 32.0, 1, 0.0, 0, 0),
    # A matmul of 2x4 by 4x4.
    ('reduce-scatter', ('tensor',), 16.0, 1, 16.0, 4 * (8 + 16 + 8), 2 * 8 * 4),
  )


def test_a_cpu_has_no_schedule_and_rows_are_assumed_to_overlap():
  beside = {
    part.axes: part.beside for part in sent.of(hlo.Program(SCHEDULED), SIZES)
  }
  assert beside == {('data',): 3 * 32.0, ('tensor',): 0.0}


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
  assert sent.of(hlo.Program(text), SIZES) == (
    ('all-reduce', ('data',), 32.0, 1, 32.0, math.inf, math.inf),
    ('all-reduce', ('tensor',), 16.0, 1, 0.0, math.inf, math.inf),
  )
