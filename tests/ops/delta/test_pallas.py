"""The delta rule's kernels, interpreted on the CPU, and for a GPU without one.

Gates and rates are those of rnn_jax/selfcheck; the oracle is in float64.
"""

import contextlib
import functools
import re

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.cells import base
from rnn_jax.ops import precision
from rnn_jax.ops.delta import pallas as delta_pallas
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.profiling import kernels
from rnn_jax.selfcheck import delta as check
from rnn_jax.system import target
from tests.ops.gla import test_pallas as test_gla_pallas
from tests.support import loops

# What jax 0.12 announces is said in docs/recurrence.md.
pytestmark = [
  pytest.mark.slow,
  pytest.mark.filterwarnings(
    'ignore:The Pallas Triton backend is deprecated:DeprecationWarning'
  ),
]

# form, operands, decay, chunk_length, (L, H, K, P), bound. Of these, one has
# several chunks, one states of several tiles, one blocks of 2 steps and one
# blocks of 64; the largest error in float32 is 2.9e-7.
CASES = (
  ('delta', 'float32', 'key', 16, (37, 2, 20, 5), check.CLOSE),
  ('general', 'float32', 'head', None, (20, 1, 65, 40), check.CLOSE),
  ('delta', 'tf32', 'head', None, (9, 1, 4, 3), 5e-5),  # measured: 1.6e-5
  ('general', 'bfloat16', 'key', None, (20, 1, 16, 8), 15e-3),  # 7.4e-3
  ('delta', 'bfloat16', 'head', None, (70, 1, 128, 64), 18e-3),  # 8.2e-3
)
# What a training step runs: as it is named in a profile.
FORWARD = {'delta_prepare', 'delta_states', 'delta_outputs'}
BACKWARD = {'delta_states_reverse', 'delta_pairs', 'delta_gradients'}

# Other tests compile in a hurry, which here would cost registers.
OPTIMIZED = {
  'xla_backend_optimization_level': 3,
  'xla_llvm_disable_expensive_passes': False,
}


@pytest.mark.parametrize(
  ('form', 'operands', 'decay', 'chunk_length', 'widths', 'bound'), CASES
)
def test_values_and_gradients_equal_the_oracle(
  form, operands, decay, chunk_length, widths, bound
):
  drawn = check.draw(form, decay, widths, 0)
  with gla_pallas.interpret():
    run = check.both_ways(form, 'pallas', chunk_length, operands)
    errors = check.errors(run(*drawn), *drawn)
  assert all(error <= bound for error in errors.values()), errors
  if operands != 'float32':
    assert errors['y'] > bound / 64  # they are rounded


def shapes(form, L=40, K=16, P=16):
  """One sequence of two heads."""

  def shape(*lengths):
    return jax.ShapeDtypeStruct((1, *lengths), jnp.float32)

  others = (shape(L, 2),) if form == 'delta' else (shape(L, 2, K),) * 2
  of_steps = shape(L, 2, K), shape(L, 2, K), shape(L, 2, P), shape(L, 2, K)
  return shape(2, K, P), *of_steps, *others


def run(form, **options):
  return functools.partial(check.RUN[form], impl='pallas', **options)


@pytest.mark.parametrize('form', check.RUN)
def test_unsupported_inputs_are_refused_with_a_remedy(form):
  if not gla_pallas.runs_here():
    with pytest.raises(NotImplementedError, match="needs a GPU.*'chunked'"):
      jax.eval_shape(run(form), *shapes(form))
  with gla_pallas.interpret():
    for wide in ({'K': 257}, {'P': 300}):
      with pytest.raises(NotImplementedError, match="more heads or.*'chunked'"):
        jax.eval_shape(run(form), *shapes(form, **wide))


@pytest.mark.parametrize('chunk_length', (32, None))
def test_chunks_are_as_long_as_asked_or_as_memory_allows(
  chunk_length, monkeypatch
):
  monkeypatch.setattr(delta_pallas, 'MEMORY', 2**17)
  with gla_pallas.interpret():
    function = run('delta', chunk_length=chunk_length)
    program = jax.make_jaxpr(function)(*shapes('delta', 256))
    inputs = shapes('delta', 64, 32, 64)
    back = jax.eval_shape(lambda *x: jax.vjp(function, *x)[1], *inputs)
  assert loops.lengths(program)[0] == {32: 8, None: 4}[chunk_length]
  # The backward pass keeps what a step reads, and a state for each chunk, not
  # for each block.
  kept = max(x.size for x in jax.tree.leaves(back))
  assert kept <= 64 * 2 * 64


def test_a_row_that_fits_memory_is_one_chunk():
  with gla_pallas.interpret():
    program = jax.make_jaxpr(run('delta'))(*shapes('delta', 256))
  assert not loops.lengths(program)


def lowered(form, operands, gradients):
  """The program for a GPU: its text, and the names of our kernels."""

  def both(*arrays):
    out, back = jax.vjp(run(form, operands=operands), *arrays)
    return out, back(out)

  function = both if gradients else run(form, operands=operands)
  with test_gla_pallas.a_gpu(), pretended():
    traced = jax.jit(function).trace(*shapes(form))
    text = traced.lower(lowering_platforms=('cuda',)).as_text()
  return text, {*re.findall(r'name = "(delta_\w+)"', text)}


@contextlib.contextmanager
def pretended():
  """As if the device were a GPU."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(target, 'platform', lambda: 'gpu')
    patch.setattr(target, 'capability', lambda: (9, 0))
    yield


@pytest.mark.parametrize('form', check.RUN)
def test_a_pass_is_a_few_kernels(form):
  text, both = lowered(form, 'bfloat16', True)
  assert both == FORWARD | BACKWARD
  assert 'stablehlo.dot' not in text  # the kernels have all products


def test_each_format_of_operands_has_its_own_program():
  programs = [lowered('delta', x, False) for x in precision.RECURRENT]
  assert all(names == FORWARD for _, names in programs)
  assert len({text for text, _ in programs}) == len(programs)


def test_nothing_runs_again_if_remat_keeps_the_outputs():
  keep = jax.checkpoint_policies.save_only_these_names(base.KEPT)

  @functools.partial(jax.checkpoint, policy=keep)
  def layer(*arrays):
    _, y = run('delta')(*arrays)
    return jnp.sin(y)  # whose gradient reads y

  def both(*arrays):
    y, back = jax.vjp(layer, *arrays)
    return y, back(y)

  with gla_pallas.interpret():
    program = jax.make_jaxpr(both)(*shapes('delta'))
  again = program.eqns[-1].params['jaxpr'].eqns
  read = {id(x) for equation in again for x in equation.invars}
  calls = [x for x in again if x.primitive.name == 'pallas_call']
  assert calls
  for x in calls:  # jax 0.12 removes this one, and before that XLA
    is_read = any(id(y) in read for y in x.outvars)
    assert is_read == (x.params['name'] != 'delta_outputs')


@pytest.mark.parametrize('form', check.RUN)
def test_auto_is_chunked_on_a_gpu(form, monkeypatch):
  monkeypatch.setattr(target, '_used', target.GPUS['h200'])

  def program(impl):
    run = functools.partial(check.RUN[form], operands='bfloat16', impl=impl)
    return str(jax.make_jaxpr(run)(*shapes(form, 80, 128, 64)))

  assert program('auto') == program('chunked')


@pytest.mark.cuda
@pytest.mark.parametrize(('P', 'width'), ((256, 1), (128, 128)))
def test_the_compiler_finds_registers(P, width, tmp_path):
  B, L, H, K = 16, 128, 16, 128
  with target.using('h100'), kernels.writing(tmp_path) as options:
    place = jax.sharding.SingleDeviceSharding(target.device())

    def shape(*lengths, dtype=jnp.bfloat16):
      return jax.ShapeDtypeStruct(lengths, dtype, sharding=place)

    def both(*arrays):
      out, back = jax.vjp(run('delta', operands='bfloat16'), *arrays)
      return out, back(out)

    keys = shape(B, L, H, K)
    traced = jax.jit(both).trace(
      shape(B, H, K, P, dtype=jnp.float32),
      keys,
      keys,
      shape(B, L, H, P),
      shape(B, L, H, width, dtype=jnp.float32),
      shape(B, L, H),
    )
    target.compiled(traced, options | OPTIMIZED)
    made = [x for x in kernels.read(tmp_path) if 'delta' in x.name]
  assert {x.name.partition('__')[0] for x in made} == FORWARD | BACKWARD
  limit = target.GPUS['h100'].shared - target.KIB
  for kernel in made:
    assert kernel.spilled == 0, kernel
    assert kernel.shared <= limit
