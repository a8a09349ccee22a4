"""Kernels with one decay a head, whose heads share keys in groups.

Interpreted on the CPU, and lowered or compiled for a GPU without one; the
inputs, the measure of error and the bounds are the self-check's.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import gla
from rnn_jax.ops import precision
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.ops.gla.ssd import tiles
from rnn_jax.profiling import kernels as kernels_lib
from rnn_jax.selfcheck import gla as selfcheck
from rnn_jax.system import target
from tests.ops.gla import test_pallas

# What jax 0.12 announces is said in docs/recurrence.md.
pytestmark = [
  pytest.mark.slow,
  pytest.mark.filterwarnings(
    'ignore:The Pallas Triton backend is deprecated:DeprecationWarning'
  ),
]

# (L, K, P, read, decay, dtype, operands), H, G, and the fewest programs that
# keep a GPU busy: with 1, one program has all heads of a group. Lengths and
# widths divide nothing; of the others, one has several tiles of values and one
# several chunks.
CASES = (
  ((37, 20, 5, 'after', 'head', 'float32', 'float32'), 2, 1, 1),
  ((1, 3, 4, 'after', 'head', 'float32', 'float32'), 2, 2, 1),
  ((19, 16, 130, 'before', 'head', 'float32', 'tf32'), 2, 1, 1),
  ((130, 33, 17, 'after', 'head', 'bfloat16', 'bfloat16'), 4, 2, 1),
  ((70, 16, 16, 'after', 'head', 'float32', 'bfloat16'), 4, 1, 512),
)
FORWARD = {'ssd_outputs'}
BACKWARD = {'ssd_states', 'ssd_outputs_reverse', 'ssd_pairs', 'ssd_keys'}


@pytest.mark.parametrize(('case', 'H', 'groups', 'many'), CASES)
def test_values_and_gradients_equal_the_oracle(
  case, H, groups, many, monkeypatch
):
  monkeypatch.setattr(tiles, 'MANY', many)
  rows = test_pallas.EVERY_GATE
  given = {'rows': rows, 'H': H, 'groups': groups}
  assert test_pallas.excess_errors(*case, **given) == {}


def test_rates_and_skips_equal_those_of_scaled_values():
  inputs, _, cotangents = selfcheck.draw(37, 'shared', H=2, K=4, P=3)
  rng = np.random.default_rng(1)
  row = selfcheck.row_names().index('sigmoid, starts: none')
  state, q, k, v, loga = (x[row : row + 1] for x in inputs)
  cotangents = tuple(x[row : row + 1] for x in cotangents)
  rate = rng.uniform(size=v.shape[:3]).astype(np.float32)
  rate[:, ::5] = 0  # writes nothing
  skip = rng.normal(size=v.shape[2:3]).astype(np.float32)

  def scaled(state, q, k, v, loga, rate, skip):
    state, y = gla.recurrence(
      state, q, k, rate[..., None] * v, loga, impl='scan'
    )
    return state, y + skip[None, None, :, None] * v

  def rated(*arrays):
    *arrays, rate, skip = arrays
    return run(*arrays, rate_BxLxH=rate, skip_H=skip)

  def passes(function):
    def both(*arrays):
      out, back = jax.vjp(function, *arrays)
      return out, back(cotangents)

    return jax.jit(both)(state, q, k, v, loga, rate, skip)

  with gla_pallas.interpret():
    got = passes(rated)
  # Measured: 2.4e-7.
  for x, y in zip(*map(jax.tree.leaves, (got, passes(scaled))), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-6 * abs(y).max())


def shapes(L=40, H=4, G=1, K=16, P=16, B=1, dtype=jnp.float32, **options):
  def shape(*lengths, dtype=dtype):
    return jax.ShapeDtypeStruct((B, *lengths), dtype, **options)

  keys, exact = shape(L, G, K), jnp.float32
  return (
    shape(H, K, P, dtype=exact),
    *(keys, keys, shape(L, H, P)),
    shape(L, H, 1, dtype=exact),
  )


def run(*arrays, **options):
  return gla.recurrence(*arrays, impl='pallas', **options)


def both_ways(*arrays, **options):
  out, back = jax.vjp(functools.partial(run, **options), *arrays)
  return out, back(out)


def test_unsupported_inputs_are_refused_with_a_remedy():
  if not gla_pallas.runs_here():
    with pytest.raises(NotImplementedError, match="needs a GPU.*'chunked'"):
      jax.eval_shape(run, *shapes())
  with gla_pallas.interpret():
    for wide in ({'K': 257}, {'P': 300}):
      with pytest.raises(NotImplementedError, match="more heads or.*'chunked'"):
        jax.eval_shape(run, *shapes(**wide))


def test_the_backward_pass_keeps_only_the_inputs():
  arrays = shapes(130, K=32, P=64)
  with gla_pallas.interpret():
    kept = jax.eval_shape(lambda *x: jax.vjp(run, *x)[1], *arrays)
  most = arrays[3].size * 160 / 130  # padded
  assert all(x.size <= most for x in jax.tree.leaves(kept))


def test_each_format_of_operands_is_lowered_for_a_gpu(monkeypatch):
  monkeypatch.setattr(target, 'platform', lambda: 'gpu')
  programs = set()
  for operands in precision.RECURRENT:
    both = functools.partial(both_ways, operands=operands)
    with test_pallas.a_gpu():
      traced = jax.jit(both).trace(*shapes(130, G=2, K=64, P=20))
      text = traced.lower(lowering_platforms=('cuda',)).as_text()
    assert {*re.findall(r'name = "(ssd_\w+)"', text)} == FORWARD | BACKWARD
    assert 'stablehlo.dot' not in text  # the kernels have all products
    programs.add(text)
  assert len(programs) == len(precision.RECURRENT)


@pytest.mark.cuda
def test_the_compiler_finds_registers(tmp_path):
  with target.using('h100'), kernels_lib.writing(tmp_path) as options:
    place = jax.sharding.SingleDeviceSharding(target.device())
    arrays = shapes(
      256, 64, K=128, P=64, B=8, dtype=jnp.bfloat16, sharding=place
    )
    both = functools.partial(both_ways, operands='bfloat16')
    traced = jax.jit(both).trace(*arrays)
    target.compiled(traced, options | test_pallas.OPTIMIZED)
    made = [x for x in kernels_lib.read(tmp_path) if 'ssd' in x.name]
  assert {x.name.partition('__')[0] for x in made} == FORWARD | BACKWARD
  limit = target.GPUS['h100'].shared - target.KIB
  for kernel in made:
    assert kernel.spilled == 0, kernel
    assert kernel.shared <= limit
