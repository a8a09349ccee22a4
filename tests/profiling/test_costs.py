"""Bytes and operations of kernels in handwritten programs, by hand."""

import pytest

from rnn_jax.profiling import costs
from rnn_jax.profiling import hlo

TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=1

%add.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(%a, %b)
}

%read (stack: f32[6,8,4], n: s32[], x: bf16[8,4]) -> bf16[8,4] {
  %stack = f32[6,8,4]{2,1,0} parameter(0)
  %n = s32[] parameter(1)
  %x = bf16[8,4]{1,0} parameter(2)
  %zero = s32[] constant(0)
  %slice.1 = f32[1,8,4]{2,1,0} dynamic-slice(%stack, %n, %zero, %zero), \
dynamic_slice_sizes={1,8,4}
  %flat.1 = f32[8,4]{1,0} bitcast(%slice.1)
  %cast.1 = bf16[8,4]{1,0} convert(%flat.1)
  ROOT %mul.1 = bf16[8,4]{1,0} multiply(%cast.1, %x)
}

%write (stack.1: f32[6,8], n.1: s32[], y: f32[8]) -> f32[6,8] {
  %stack.1 = f32[6,8]{1,0} parameter(0)
  %n.1 = s32[] parameter(1)
  %y = f32[8]{0} parameter(2)
  %zero.1 = s32[] constant(0)
  %exp.1 = f32[8]{0} exponential(%y)
  %row.1 = f32[1,8]{1,0} bitcast(%exp.1)
  ROOT %put.1 = f32[6,8]{1,0} dynamic-update-slice(%stack.1, %row.1, %n.1, \
%zero.1)
}

%cast (c: f32[64]) -> bf16[64] {
  %c = f32[64]{0} parameter(0)
  ROOT %cast.2 = bf16[64]{0} convert(%c)
}

%gemm (l: bf16[8,4], r: bf16[4,16]) -> f32[8,16] {
  %l = bf16[8,4]{1,0} parameter(0)
  %r = bf16[4,16]{1,0} parameter(1)
  ROOT %dot.1 = f32[8,16]{1,0} dot(%l, %r), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}
}

%total (t: f32[8,16]) -> f32[8] {
  %t = f32[8,16]{1,0} parameter(0)
  %none = f32[] constant(0)
  ROOT %reduce.1 = f32[8]{0} reduce(%t, %none), dimensions={1}, to_apply=%add.1
}

%body (s: (s32[], f32[6,8,4], bf16[8,4])) -> (s32[], f32[6,8,4], bf16[8,4]) {
  %s = (s32[], f32[6,8,4]{2,1,0}, bf16[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %w = f32[6,8,4]{2,1,0} get-tuple-element(%s), index=1
  %h = bf16[8,4]{1,0} get-tuple-element(%s), index=2
  %layer = bf16[8,4]{1,0} fusion(%w, %i, %h), kind=kLoop, calls=%read
  ROOT %out = (s32[], f32[6,8,4]{2,1,0}, bf16[8,4]{1,0}) tuple(%i, %w, %layer)
}

%again (s.1: (s32[], f32[6,8,4], bf16[8,4])) -> pred[] {
  %s.1 = (s32[], f32[6,8,4]{2,1,0}, bf16[8,4]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %most = s32[] constant(6)
  ROOT %less = pred[] compare(%i.1, %most), direction=LT
}

ENTRY %main (p: (s32[], f32[6,8,4], bf16[8,4])) -> f32[8] {
  %p = (s32[], f32[6,8,4]{2,1,0}, bf16[8,4]{1,0}) parameter(0)
  %kept = f32[6,8]{1,0} iota(), iota_dimension=0
  %number = s32[] constant(2)
  %one = f32[8]{0} iota(), iota_dimension=0
  %many = f32[64]{0} iota(), iota_dimension=0
  %q = bf16[2,4,8,16]{3,2,1,0} custom-call(), custom_call_target="x"
  %left = bf16[8,4]{1,0} custom-call(), custom_call_target="x"
  %right = bf16[4,16]{1,0} custom-call(), custom_call_target="x"
  %exact = f32[8,4]{1,0} custom-call(), custom_call_target="x"
  %while.1 = (s32[], f32[6,8,4]{2,1,0}, bf16[8,4]{1,0}) while(%p), \
condition=%again, body=%body, backend_config={"known_trip_count":{"n":"6"}}
  %update = f32[6,8]{1,0} fusion(%kept, %number, %one), kind=kLoop, \
calls=%write
  %narrow = bf16[64]{0} fusion(%many), kind=kLoop, calls=%cast
  %library = (f32[8,16]{1,0}, s8[4096]{0}) custom-call(%left, %right), \
custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":\
{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]},\
"precision_config":{"operand_precision":["DEFAULT","DEFAULT"]}}}
  %precise = (f32[8,16]{1,0}, s8[4096]{0}) custom-call(%exact, %right), \
custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":\
{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]},\
"precision_config":{"operand_precision":["HIGHEST","HIGHEST"]}}}
  %own = f32[8,16]{1,0} fusion(%left, %right), kind=kCustom, calls=%gemm
  %attention = (bf16[2,4,8,16]{3,2,1,0}, u8[512]{0}) custom-call(%q, %q, %q), \
custom_call_target="__cudnn$fmhaSoftmax", backend_config={\
"cudnn_fmha_backend_config": {"mask_type": "CAUSAL", \
"intermediate_tensor_shape": {"element_type": "BF16", "dimensions": \
["2", "4", "8", "8"]}}}
  %kernel = f32[32,128]{1,0} custom-call(%many), \
custom_call_target="__gpu$xla.gpu.triton"
  ROOT %summed = f32[8]{0} fusion(%own), kind=kInput, calls=%total
}
"""
GEMM = 2 * 8 * 16 * 4


@pytest.fixture(name='program', scope='module')
def _program():
  return hlo.Program(TEXT)


@pytest.mark.parametrize(
  ('name', 'expected'),
  (
    # A layer of six, its number isn't read as an array; a product and a cast
    # that takes no instruction.
    ('layer', costs.Cost(32 * 4 + 4 + 2 * 32 * 2, {}, 32)),
    # And the loop's comparison of 32 bits.
    ('while.1', costs.Cost(6 * (260 + 9), {}, 6 * 33)),
    # A row is written, the stack isn't read; an exponential counts eight.
    ('update', costs.Cost(32 + 4 + 32, {}, 64)),
    ('narrow', costs.Cost(256 + 128, {}, 0)),
    # Without the working space.
    ('library', costs.Cost(64 + 128 + 512, {'bfloat16': GEMM}, 0)),
    ('precise', costs.Cost(128 + 128 + 512, {'float32': GEMM}, 0)),
    ('own', costs.Cost(64 + 128 + 512, {'bfloat16': GEMM}, 0)),
    # Two products of 8 x 8 scores of 8 heads, half of them.
    (
      'attention',
      costs.Cost(4 * 2048, {'bfloat16': 2 * 2 * 8 * 64 * 16 / 2}, 0),
    ),
    ('summed', costs.Cost(512 + 32, {}, 128)),
  ),
)
def test_costs_by_hand(program, name, expected):
  assert costs.of(program, name) == expected


def test_what_only_moves(program):
  assert costs.only_moves(program, 'narrow')
  assert not costs.only_moves(program, 'update')
  assert not costs.only_moves(program, 'own')


def test_costs_add_up():
  one = costs.Cost(1, {'int8': 2}, 3)
  assert one.times(2) + costs.Cost(1, {'float32': 1}) == costs.Cost(
    3, {'int8': 4, 'float32': 1}, 6
  )
  assert (one.flops, costs.NOTHING.flops) == (2, 0)
