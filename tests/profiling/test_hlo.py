"""Programs' texts: a made one read by eye, and one that XLA wrote."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.profiling import hlo
from rnn_jax.profiling import modules

TEXT = """HloModule jit_step, is_scheduled=true, entry_computation_layout={()}

FileNames
1 "/a/rnn_jax/rnn_jax/ops/cross_entropy.py"
2 "/a/rnn_jax/rnn_jax/ops/precision.py"
3 "/a/site-packages/optax/_src/update.py"
4 "/a/main.py"

FunctionNames
1 "sums"

FileLocations
1 {file_name_id=1 function_name_id=1 line=15 end_line=7 column=2 end_column=53}
2 {file_name_id=2 function_name_id=1 line=15 end_line=7 column=2 end_column=53}
3 {file_name_id=3 function_name_id=1 line=15 end_line=7 column=2 end_column=53}
4 {file_name_id=4 function_name_id=1 line=15 end_line=7 column=2 end_column=53}

StackFrames
1 {file_location_id=1 parent_frame_id=5}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=2}
4 {file_location_id=4 parent_frame_id=1}

%fused (p.1: f32[8,4]) -> f32[8,4] {
  %p.1 = f32[8,4]{1,0} parameter(0)
  %one.1 = f32[] constant(1), metadata={op_name="jit(step)/early/add"}
  ROOT %add.9 = f32[8,4]{1,0} add(%p.1, %p.1), metadata={op_name="jit(step)/\
jvp(Model.features)/stack/while/body/closed_call/cell/add" source_line=3}
}

%body.1 (s: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %s = (s32[], f32[8,4]{1,0}) parameter(0)
  %x.1 = f32[8,4]{1,0} get-tuple-element(%s), index=1
  %dot.1 = f32[8,4]{1,0} dot(%x.1, %x.1), metadata={op_name="jit(step)/\
transpose(jvp(Model.features))/stack/while/body/cell/out/dot_general"}
  ROOT %t.1 = (s32[], f32[8,4]{1,0}) tuple(%x.1, %dot.1)
}

%condition.1 (s.2: (s32[], f32[8,4])) -> pred[] {
  %s.2 = (s32[], f32[8,4]{1,0}) parameter(0)
  ROOT %less.1 = pred[] compare(%s.2, %s.2), direction=LT
}

ENTRY %main.7 (a: f32[8,4], b: bf16[100]) -> (f32[8,4], /*index=1*/bf16[100]) {
  %a = f32[8,4]{1,0} parameter(0)
  %b = bf16[100]{0} parameter(1)
  %fusion.1 = f32[8,4]{1,0} fusion(%a), kind=kLoop, calls=%fused
  %while.1 = (s32[], f32[8,4]{1,0}) while(%fusion.1), condition=%condition.1, \
body=%body.1, metadata={op_name="jit(step)/stack/while"}
  %dot.5 = f32[8,4]{1,0} dot(%a, %fusion.1), lhs_contracting_dims={1}
  %sub.1 = f32[8]{0} subtract(%a, %a), metadata={op_name="jit(step)/sub" \
stack_frame_id=2}
  %pair.1 = (f32[16,4]{1,0}, s8[3]{0}) custom-call(%a), custom_call_target="x"
  ROOT %t.2 = (f32[8,4]{1,0}, /*index=1*/bf16[100]{0}) tuple(%a, %b)
}
"""


def test_operations_that_run_by_themselves():
  program = hlo.Program(TEXT)
  assert program.name == 'jit_step'
  assert {'fusion.1', 'while.1', 'dot.1', 'less.1'} <= program.operations.keys()
  assert 'add.9' not in program.operations
  assert program.is_container('while.1')
  assert not program.is_container('dot.1')
  assert not program.is_container('elsewhere')


def test_a_fusion_is_its_root_s_module():
  program = hlo.Program(TEXT)
  assert program.module('fusion.1') == 'stack/cell'
  backward = 'stack/cell/out (backward)'
  assert program.module('dot.1') == backward
  assert program.module('dot.5') == 'stack/cell'  # it reads fusion.1
  assert program.module('sub.1') == 'ops/cross_entropy'
  assert program.module('pair.1') == modules.NOBODY
  assert program.module('elsewhere') == modules.NOBODY


def test_largest_results_leave_out_what_is_only_renamed():
  result = [
    (size, array, operation.name)
    for size, array, operation in hlo.Program(TEXT).largest(6)
  ]
  assert result == [
    (256, 'f32[16,4]', 'pair.1'),
    (128, 'f32[8,4]', 'dot.1'),
    (128, 'f32[8,4]', 'dot.5'),
    (128, 'f32[8,4]', 'fusion.1'),
    (32, 'f32[8]', 'sub.1'),
    (3, 's8[3]', 'pair.1'),
  ]


@pytest.mark.parametrize(
  ('dtype', 'size'),
  (
    ('pred', 30),
    ('s4', 15),
    ('u8', 30),
    ('f8e4m3fn', 30),
    ('bf16', 60),
    ('f32', 120),
    ('c64', 240),
    ('token', 0),
  ),
)
def test_bytes_of_arrays(dtype, size):
  assert hlo.array_bytes(dtype, (3, 10)) == size


@pytest.mark.parametrize(
  ('path', 'module'),
  (
    ('', modules.NOBODY),
    ('jit(step)/add', modules.NOBODY),
    ('jit(step)/jvp(M.f)/head/dot_general', 'head'),
    ('jit(step)/transpose(jvp(M.f))/checkpoint/head/mul', 'head (backward)'),
    (
      'jit(step)/transpose(jvp(M.f))/rematted_computation/cell/mul',
      'cell (again)',
    ),
    ('jit(step)/vmap(jvp(M.f))/jit(relu)/cell/max', 'cell'),
    (
      'jit(s)/jvp(M.f)/M.g/cell/cell.run/cell._go/while/body/ij,jk->ik/dot',
      'cell.run',
    ),
    ('jit(step)/jvp(M.f)/cell/cell.run/projection/dot', 'cell.run/projection'),
  ),
)
def test_module_of_a_path(path, module):
  assert modules.of(path) == module


def test_a_program_that_xla_wrote():
  def loss(w, x):
    def step(h, x):
      with jax.named_scope('cell'):
        return jnp.tanh(h @ w + x), None

    h, _ = jax.lax.scan(step, jnp.zeros((64, 64)), x)
    with jax.named_scope('head'):
      return jnp.sum(jax.lax.sort(h) ** 2)

  like = jax.ShapeDtypeStruct((64, 64), jnp.float32)
  many = jax.ShapeDtypeStruct((16, 64, 64), jnp.float32)
  text = jax.jit(jax.grad(loss)).lower(like, many).compile().as_text()
  program = hlo.Program(text)
  assert program.name == 'jit_loss'
  modules = {operation.module for operation in program.operations.values()}
  assert any('cell' in name for name in modules)
  assert any('head' in name for name in modules)
  assert any(name.endswith('(backward)') for name in modules)
  size, array, _ = program.largest(1)[0]
  assert (size, array) == (16 * 64 * 64 * 4, 'f32[16,64,64]')


def test_a_file_takes_the_place_of_a_module_that_was_not_entered():
  result = modules.Frames(TEXT)
  files = [result.file(str(number)) for number in range(6)]
  entropy = 'ops/cross_entropy'
  assert files == ['', entropy, entropy, 'optax', '', '']
  assert modules.Frames('HloModule x').file('1') == ''
  path = 'jit(step)/transpose(jvp())/mul'
  assert modules.of(path, entropy) == f'{entropy} (backward)'
  assert modules.of('jit(step)/jvp(M.f)/head/mul', entropy) == 'head'
