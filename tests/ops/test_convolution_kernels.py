"""The convolution with a SiLU: XLA's form, and the kernels interpreted.

The oracle, the measure of error and the bounds are the self-check's.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.ops import causal_convolution
from rnn_jax.ops.causal_convolution import pallas
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.profiling import kernels as kernels_lib
from rnn_jax.selfcheck import convolution as check
from rnn_jax.system import target
from tests.ops.gla import test_pallas

# What jax 0.12 announces is said in docs/recurrence.md.
pytestmark = pytest.mark.filterwarnings(
  'ignore:The Pallas Triton backend is deprecated:DeprecationWarning'
)
# L, taps, E, heads, dtype: lengths and widths divide nothing, one has several
# programs along time, one several tiles of channels.
CASES = (
  (37, 4, 6, 2, 'float32'),
  (3, 4, 5, 0, 'float32'),
  (21, 2, 40, 0, 'float32'),
  (21, 3, 33, 3, 'bfloat16'),
)


def options(impl, heads=0):
  norm = causal_convolution.Norm(heads, 0.25) if heads else None
  return causal_convolution.Options(True, norm, impl)


@pytest.mark.parametrize(('L', 'taps', 'E', 'heads', 'dtype'), CASES)
@pytest.mark.parametrize('impl', ('xla', 'pallas'))
def test_values_and_gradients_equal_the_oracle(
  L, taps, E, heads, dtype, impl, monkeypatch
):
  monkeypatch.setattr(pallas, 'STEPS', 16)
  monkeypatch.setattr(pallas, 'COLUMNS', 16)
  drawn = check.draw(L, taps, E, dtype)
  with gla_pallas.interpret():
    errors = check.errors(drawn, options(impl, heads), dtype)
  bound = check.BOUNDS[dtype]
  assert {x: e for x, e in errors.items() if not e <= bound} == {}


def both_ways(given, *arrays):
  def run(state, x, kernel, bias, starts):
    return causal_convolution.convolve(state, x, kernel, starts, bias, given)[1]

  y, back = jax.vjp(lambda *floats: run(*floats, arrays[-1]), *arrays[:-1])
  return y, back(y)


def shapes(E=128, L=256, B=2, **where):
  def shape(*lengths, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(lengths, dtype, **where)

  return (
    shape(B, 3, E),
    shape(B, L, E, dtype=jnp.bfloat16),
    shape(4, E),
    shape(E),
    shape(B, L, dtype=jnp.int32),
  )


def test_unsupported_options_are_refused_with_a_remedy():
  if not gla_pallas.runs_here():
    with pytest.raises(NotImplementedError, match='needs a GPU'):
      jax.eval_shape(lambda *x: both_ways(options('pallas'), *x), *shapes())
  plain = causal_convolution.Options(impl='pallas')
  with pytest.raises(NotImplementedError, match="has a SiLU.*use 'xla'"):
    jax.eval_shape(lambda *x: both_ways(plain, *x), *shapes())


@pytest.mark.cuda
@pytest.mark.parametrize(('heads', 'E'), ((0, 512), (2, 256)))
def test_the_compiler_finds_registers(heads, E, tmp_path):
  with target.using('h100'), kernels_lib.writing(tmp_path) as settings:
    place = jax.sharding.SingleDeviceSharding(target.device())

    def run(*arrays):
      return both_ways(options('pallas', heads), *arrays)

    traced = jax.jit(run).trace(*shapes(E, sharding=place))
    target.compiled(traced, settings | test_pallas.OPTIMIZED)
    made = [x for x in kernels_lib.read(tmp_path) if 'convolution' in x.name]
  names = {re.sub(r'__.*|_\d+$', '', x.name) for x in made}
  both = {'convolution', 'convolution_gradients'}
  assert names == (both if heads else {'convolution_gradients'})
  assert all(x.spilled == 0 and x.shared <= 48 * target.KIB for x in made)
