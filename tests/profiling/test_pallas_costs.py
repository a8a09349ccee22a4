"""A kernel's operations, by hand, and its call in a handwritten program."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.profiling import costs
from rnn_jax.profiling import hlo
from rnn_jax.profiling import pallas_costs
from tests.profiling import test_costs


def double(x_ref, y_ref):
  y_ref[...] = jnp.exp(x_ref[...]) @ jnp.ones((128, 128)) + 1


def test_kernels_are_found_by_their_results():
  program = hlo.Program(test_costs.TEXT)
  block = pl.BlockSpec((8, 128), lambda n: (n, 0))
  run = pl.pallas_call(
    double,
    grid=(4,),
    in_specs=[block],
    out_specs=block,
    out_shape=jax.ShapeDtypeStruct((32, 128), jnp.float32),
  )
  made = pallas_costs.of(jax.make_jaxpr(run)(jnp.zeros((32, 128))))
  (kernel,) = made.values()
  assert kernel.bytes == 0
  assert kernel.products == {'float32': 2 * 32 * 128 * 128}
  assert kernel.arithmetic == (8 + 1) * 32 * 128
  found = costs.of(program, 'kernel', made)
  assert found == costs.Cost(
    256 + 4 * 32 * 128, kernel.products, kernel.arithmetic
  )
  assert pallas_costs.unmatched(program, made) == []
  assert pallas_costs.unmatched(program, {}) == ['kernel']
