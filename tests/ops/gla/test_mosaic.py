"""Hopper's kernels: interpreted on the CPU, and compiled for one.

The inputs, the measure of error and the bounds are the self-check's.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import gla
from rnn_jax.ops import precision
from rnn_jax.ops.gla import mosaic
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.profiling import kernels
from rnn_jax.system import target
from tests.ops.gla import test_pallas

pytestmark = pytest.mark.slow

# L, K, P, read, decay, dtype, operands, rows. A tile has 64 of each; chunks
# take turns in two places. Rows are slow: the first has all gates, with several
# resets, and each of the others one kind.
CASES = (
  (130, 20, 16, 'after', 'key', 'float32', 'float32', slice(20, 21)),
  (3, 70, 16, 'after', 'key', 'bfloat16', 'bfloat16', slice(2, 15, 12)),
  (17, 16, 80, 'before', 'key', 'float32', 'tf32', slice(5, None, 18)),
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


@pytest.mark.parametrize(
  ('name', 'L', 'K', 'options', 'chosen'),
  (
    ('h100', 64, 32, {}, 'pallas'),
    ('h100', 63, 32, {}, 'chunked'),
    ('h100', 64, 31, {}, 'chunked'),
    ('h100', 64, 32, {'chunk_length': 64}, 'chunked'),
    ('h100', 64, 32, {'operands': 'float32'}, 'chunked'),
    ('a100', 64, 32, {}, 'chunked'),
  ),
)
def test_auto_chooses_it_where_it_is_faster(
  name, L, K, options, chosen, monkeypatch
):
  monkeypatch.setattr(target, '_used', target.GPUS[name])
  state, *inputs = test_pallas.drawn(L, K, 64)
  asked, options = [], {'operands': 'bfloat16'} | options

  def stand_in(state, q, k, v, loga, operands):
    asked.append(operands)
    return state, v

  monkeypatch.setattr(gla_pallas, 'recurrence', stand_in)
  jax.eval_shape(lambda *x: gla.recurrence(*x, **options), state, *inputs)
  assert asked == ['bfloat16'] * (chosen == 'pallas')


def test_auto_s_kernels_have_a_decay_for_each_key(monkeypatch):
  """Those with one decay a head haven't run on a GPU."""
  monkeypatch.setattr(target, '_used', target.GPUS['h100'])
  state, q, k, v, loga = test_pallas.drawn(64, 32, 64)
  shared = q.update(shape=(*q.shape[:2], 1, 32))
  by_head = loga.update(shape=(*loga.shape[:3], 1))
  asked = []

  def stand_in(state, *inputs, operands):
    asked.append([x.shape for x in inputs])
    return state, inputs[2]

  monkeypatch.setattr(gla_pallas, 'recurrence', stand_in)
  run = functools.partial(gla.recurrence, operands='bfloat16')
  jax.eval_shape(run, state, shared, shared, v, by_head)
  assert asked == [[x.shape for x in (q, k, v, loga)]]


def test_auto_does_not_choose_it_where_shards_are_checked(monkeypatch):
  monkeypatch.setattr(target, '_used', target.GPUS['h100'])
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ('data',))
  batch = jax.sharding.PartitionSpec('data')
  x = jnp.zeros((1, 64, 1, 64))
  chosen = []

  def choose(x):
    chosen.append(gla_pallas.is_faster(x, x, 'bfloat16'))
    return x

  for checked in (True, False):
    jax.shard_map(
      choose, mesh=mesh, in_specs=batch, out_specs=batch, check_vma=checked
    )(x)
  assert chosen == [False, True]


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
      for x in test_pallas.drawn(128, 128, 128)
    ]
    target.compiled(jax.jit(both_ways).trace(*arrays), options)
    made = kernels.read(tmp_path)
  ours = {x.name.removesuffix('_mosaic_gpu_kernel'): x for x in made}
  names = 'prepare', 'states', 'outputs', 'meet', 'gradients'
  for name in names:
    kernel = ours[f'gla_{name}']
    # CUDA 12's assembler spills three registers of one kernel.
    scarce = (name, operands) == ('gradients', 'float32')
    assert kernel.spilled <= 12 * scarce
    assert kernel.shared <= target.GPUS['h100'].shared - target.KIB
