"""Hopper's kernels: interpreted on the CPU, and compiled for one.

The inputs, the measure of error and the bounds are the self-check's.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import target
from rnn_jax.ops import precision
from rnn_jax.ops.gla import mosaic
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.profiling import kernels
from tests.ops.gla import test_pallas

pytestmark = pytest.mark.slow

# L, K, P, read, decay, dtype, operands, rows. A tile has 64 of each; chunks
# take turns in two places. Rows are slow: the first has all gates, with several
# resets, and each of the others one kind.
CASES = (
  (130, 20, 16, 'after', 'key', 'float32', 'float32', slice(20, 21)),
  (3, 70, 16, 'after', 'key', 'bfloat16', 'bfloat16', slice(2, 15, 12)),
  (17, 16, 80, 'before', 'head', 'float32', 'tf32', slice(5, None, 18)),
)


@pytest.mark.parametrize('case', CASES)
def test_values_and_gradients_equal_the_oracle(case):
  assert test_pallas.excess_errors(*case, form='mosaic') == {}


@pytest.mark.parametrize(
  ('name', 'form'), (('h100', 'mosaic'), ('a100', 'triton'), ('b200', 'triton'))
)
def test_the_compute_capability_decides(name, form, monkeypatch):
  monkeypatch.setattr(target, '_used', target.GPUS[name])
  assert gla_pallas.form() == form


@pytest.mark.cuda
@pytest.mark.parametrize('operands', precision.RECURRENT)
def test_the_compiler_finds_registers(operands, tmp_path):
  def both_ways(*arrays):
    out, back = jax.vjp(lambda *x: mosaic.run(*x, operands=operands), *arrays)
    return out, back(out)

  with target.using('h100'), kernels.writing(tmp_path) as options:
    mesh = jax.sharding.Mesh(np.array(target.devices(1)), ('data',))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    arrays = [
      jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole)
      for x in test_pallas.drawn(128, 128, 128, 'key', jnp.float32)
    ]
    target.compiled(jax.jit(both_ways).trace(*arrays), options)
    made = kernels.read(tmp_path)
  ours = {x.name.removesuffix('_mosaic_gpu_kernel'): x for x in made}
  names = 'prepare', 'states', 'outputs', 'meet', 'gradients'
  for name in names:
    kernel = ours[f'gla_{name}']
    assert kernel.spilled == 0
    assert kernel.shared <= target.GPUS['h100'].shared - target.KIB
