"""The kernels, interpreted on the CPU, and lowered for a GPU without one.

The inputs, the measure of error and the bounds are the self-check's.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.ops import gla
from rnn_jax.ops import precision
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.ops.gla.pallas import states as gla_pallas_states
from rnn_jax.profiling import kernels as kernels_lib
from rnn_jax.selfcheck import base
from rnn_jax.selfcheck import gla as selfcheck
from rnn_jax.system import target

# What jax 0.12 announces is said in docs/recurrence.md.
pytestmark = [
  pytest.mark.slow,
  pytest.mark.filterwarnings(
    'ignore:The Pallas Triton backend is deprecated:DeprecationWarning'
  ),
]

# L, K, P, read, decay, dtype, operands. Up to 16 steps run in one kernel, and
# a kernel of single steps has no matmuls.
CASES = (
  (16, 20, 48, 'before', 'key', 'float32', 'float32'),
  (65, 32, 20, 'before', 'key', 'float32', 'float32'),
  (1, 16, 16, 'after', 'key', 'bfloat16', 'bfloat16'),
  (65, 32, 64, 'after', 'key', 'bfloat16', 'bfloat16'),
)
# States of several blocks.
CASES_WIDE = (
  (130, 128, 48, 'after', 'key', 'float32', 'float32'),
  (33, 16, 80, 'before', 'key', 'float32', 'tf32'),
)
EVERY_GATE = slice(2, None, 3)  # the rows with several resets
FORWARD = {'prepare', 'states', 'outputs'}
# What the tests' settings turn off.
OPTIMIZED = {
  'xla_backend_optimization_level': 3,
  'xla_llvm_disable_expensive_passes': False,
}
BACKWARD = FORWARD | {'score_gradients', 'meetings', 'prepare_backward'}


def excess_errors(
  L,
  K,
  P,
  read,
  decay,
  dtype,
  operands,
  rows,
  form='triton',
  H=1,
  groups=0,
):
  """The errors that exceed their bounds, by tensor, gate and start."""
  drawn = selfcheck.draw(L, decay, dtype, H=H, K=K, P=P, groups=groups)
  drawn = jax.tree.map(lambda x: x[rows], drawn)
  with gla_pallas.interpret(form):
    errors = selfcheck.errors(*drawn, 'pallas', read=read, operands=operands)
  case = base.Case('pallas', L, K, P, decay, read, dtype, operands)
  assert {*errors} == {'state', 'y', *(f'd_{x}' for x in drawn[0]._fields)}
  return {
    f'{name}, {row}': float(error)
    for name, by_row in errors.items()
    for row, error in zip(selfcheck.row_names()[rows], by_row, strict=True)
    if not error <= selfcheck.bound_of(case, name)
  }


@pytest.mark.parametrize('case', CASES)
def test_values_and_gradients_equal_the_oracle(case):
  rows = slice(None) if case[-1] == 'float32' else EVERY_GATE
  assert excess_errors(*case, rows=rows) == {}


@pytest.mark.parametrize('case', CASES_WIDE)
def test_wide_states_are_split_into_blocks(monkeypatch, case):
  monkeypatch.setattr(gla_pallas_states, 'MANY', 1)
  assert excess_errors(*case, rows=EVERY_GATE) == {}


def drawn(L, K=16, P=16, dtype=jnp.float32):
  """One sequence of two heads: its shapes only."""

  def shape(*lengths, dtype=dtype):
    return jax.ShapeDtypeStruct((1, *lengths), dtype)

  return (
    shape(2, K, P, dtype=jnp.float32),
    *(shape(L, 2, width) for width in (K, K, P)),
    shape(L, 2, K, dtype=jnp.float32),
  )


def test_unsupported_inputs_are_refused_with_a_remedy():
  def run(*arrays):
    return gla.recurrence(*arrays, impl='pallas')

  if not gla_pallas.runs_here():
    with pytest.raises(NotImplementedError, match="needs a GPU.*'chunked'"):
      jax.eval_shape(run, *drawn(17))
    assert 'pallas' not in selfcheck.implementations()
  with gla_pallas.interpret():
    assert 'pallas' in selfcheck.implementations()
    for wide in ({'K': 257}, {'P': 300}):
      with pytest.raises(NotImplementedError, match="more heads or.*'chunked'"):
        jax.eval_shape(run, *drawn(17, **wide))
    with pytest.raises(ValueError, match="operands='int8': choose one of"):
      gla_pallas.recurrence(*drawn(17), operands='int8')


@pytest.mark.parametrize('dtype', ('float32', 'bfloat16'))
def test_operands_have_the_inputs_format_by_default(dtype):
  def program(operands=None):
    def run(*arrays):
      return gla.recurrence(*arrays, impl='pallas', operands=operands)

    with gla_pallas.interpret():
      return str(jax.make_jaxpr(run)(*drawn(17, dtype=jnp.dtype(dtype))))

  assert program() == program(dtype)
  assert program() != program('tf32')


@pytest.mark.parametrize('dtype', (jnp.float32, jnp.bfloat16))
def test_the_state_is_float32_and_the_output_has_the_inputs_dtype(dtype):
  with gla_pallas.interpret():
    state, y = jax.eval_shape(
      lambda *x: gla.recurrence(*x, impl='pallas'), *drawn(17, dtype=dtype)
    )
  assert (state.dtype, y.dtype) == (jnp.float32, dtype)


def test_the_backward_pass_stores_inputs_and_a_state_for_each_chunk():
  arrays = drawn(130, 32, 64)
  with gla_pallas.interpret():
    kept = jax.eval_shape(lambda *x: jax.vjp(gla_pallas.run, *x)[1], *arrays)
  shapes = sorted(x.shape for x in jax.tree.leaves(kept) if x.ndim)
  q, v, states = (1, 192, 2, 32), (1, 192, 2, 64), (1, 2, 3, 32, 64)
  assert shapes == sorted([q, q, v, q, states])


def lowered(L, K, P, dtype, operands, gradients=True):
  """The program for a GPU: its text, and the kernels it calls."""

  def run(*arrays):
    return gla_pallas.run(*arrays, operands=operands)

  def both(*arrays):
    out, back = jax.vjp(run, *arrays)
    return out, back(out)

  compiled = jax.jit(both if gradients else run)
  with a_gpu():
    traced = compiled.trace(*drawn(L, K, P, dtype))
    text = traced.lower(lowering_platforms=('cuda',)).as_text()
  assert text.count('@__gpu$xla.gpu.triton') == text.count('name = "')
  return text, set(re.findall(r'name = "(\w+)_kernel"', text))


def a_gpu():
  """The device that is lowered for: newer versions of jax want to know."""
  sharding = jax.sharding
  device = sharding.AbstractDevice(
    device_kind='NVIDIA H100', num_cores=132, platform='gpu'
  )
  mesh = sharding.AbstractMesh((), (), abstract_device=device)
  return sharding.use_abstract_mesh(mesh)


def test_all_kernels_are_lowered_for_a_gpu():
  programs = set()
  for operands in precision.RECURRENT:  # each format has its own program
    text, kernels = lowered(130, 64, 20, 'float32', operands)
    assert kernels == BACKWARD  # none of single steps
    programs.add(text)
  assert len(programs) == len(precision.RECURRENT)
  _, kernels = lowered(3, 256, 256, 'bfloat16', 'bfloat16')
  assert kernels == BACKWARD | {'steps'}


@pytest.mark.cuda
@pytest.mark.parametrize('operands', precision.RECURRENT)
def test_the_compiler_finds_registers(operands, tmp_path):
  def both_ways(*arrays):
    out, back = jax.vjp(
      lambda *x: gla_pallas.run(*x, operands=operands), *arrays
    )
    return out, back(out)

  with target.using('a100'), kernels_lib.writing(tmp_path) as options:
    place = jax.sharding.SingleDeviceSharding(target.device())
    arrays = [
      jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
      for x in drawn(130, 64, 64)
    ]
    target.compiled(jax.jit(both_ways).trace(*arrays), options | OPTIMIZED)
    made = [x for x in kernels_lib.read(tmp_path) if '_kernel' in x.name]
  assert {x.name.partition('_kernel')[0] for x in made} == BACKWARD
  assert not any(x.spilled for x in made)


def test_short_sequences_run_in_one_kernel():
  def kernels(L):
    return lowered(L, 16, 16, 'float32', 'float32', False)[1]

  assert kernels(1) == kernels(gla_pallas.SHORT) == {'steps'}
  assert kernels(gla_pallas.SHORT + 1) == FORWARD
