"""Operations of programs, against counts by hand."""

import functools

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells import gru
from rnn_jax.cells import lstm
from rnn_jax.cells import rhn
from rnn_jax.cells import slstm
from rnn_jax.data.text import tokenizer
from rnn_jax.native import library
from rnn_jax.ops import gla
from rnn_jax.ops import routed
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.profiling import flops
from rnn_jax.system import target
from rnn_jax.training import programs as programs_lib
from tests.support import tiny

X, W = jnp.ones((4, 8)), jnp.ones((8, 8))
ONE = 2 * 4 * 8 * 8  # of X @ W


def count(function, *arguments):
  return flops.count(jax.jit(function).trace(*arguments).jaxpr)


def stacked(x, w):
  stack = jnp.stack([x] * 6), jnp.stack([w] * 6)
  return jnp.einsum('nbd,nde->nbe', *stack)


def turned(x, w):
  body = jax.checkpoint(lambda x, _: (jnp.tanh(x @ w), None))
  return jnp.sum(jax.lax.scan(body, x, None, length=5)[0])


def branched(x, w):
  branches = lambda x: x @ w @ w, lambda x: x @ w, lambda x: x
  return jax.lax.switch(jnp.int32(x[0, 0]), branches, x)


def looped(x, w):
  return jax.lax.while_loop(lambda x: x[0, 0] < 1, lambda x: x @ w, x)


@pytest.mark.parametrize(
  ('function', 'expected'),
  (
    (lambda x, w: x @ w, ONE),
    (lambda x, w: jnp.einsum('bd,de->eb', x, w) + 1, ONE),
    # Each of 6 with a matrix of its own.
    (stacked, 6 * ONE),
    (turned, 5 * ONE),
    # Forward, again, and the gradients of x and of w.
    (jax.grad(turned, argnums=(0, 1)), 5 * 4 * ONE),
    (branched, 2 * ONE),
    (looped, ONE),
    (lambda x, w: x + w[:4], 0),
  ),
)
def test_matmuls_by_hand(function, expected):
  assert sum(count(function, X, W).values()) == expected


@pytest.mark.parametrize(('groups', 'channels'), ((1, 6), (3, 2)))
def test_convolutions_by_hand(groups, channels):
  def run(x, kernel):
    return jax.lax.conv_general_dilated(
      x, kernel, (1,), 'VALID', feature_group_count=groups
    )

  counts = count(run, jnp.ones((2, 6, 10)), jnp.ones((9, channels, 3)))
  # 2 rows of 9 channels and 8 places, each of 3 taps a channel.
  assert counts == {'float32': 2 * (2 * 9 * 8) * 3 * channels}


@pytest.mark.parametrize('shards', (1, 2))
def test_experts_count_as_in_an_even_load(shards):
  chosen = jnp.zeros((2 * routed.BLOCK, 2), jnp.int32)
  gate, x = jnp.ones(chosen.shape), jnp.ones((len(chosen), 8))

  def run(x, w):
    apply = functools.partial(routed.apply, lambda w, x: x @ w, w)
    return jnp.sum(apply(x, chosen, gate, shards))

  of_all = 2 * chosen.size * 8 * 8 // shards
  w = jnp.ones((3, 8, 8))
  assert count(run, x, w) == {'float32': of_all}
  # Forward, again, and the gradients of x and of w.
  slopes = jax.grad(run, argnums=(0, 1))
  assert count(slopes, x, w) == {'float32': 4 * of_all}


def test_formats_are_those_of_the_factors():
  def run(x, w):
    narrow = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)
    return narrow.astype(jnp.float32) @ w

  assert count(run, X, W) == {'bfloat16': ONE, 'float32': ONE}
  whole = count(lambda x: x @ x.T, X.astype(jnp.int8))
  assert whole == {'int8': 2 * 4 * 4 * 8}
  tf32 = jax.lax.DotAlgorithmPreset.TF32_TF32_F32
  assert count(lambda x, w: jnp.dot(x, w, precision=tf32), X, W) == {
    'tf32': ONE
  }


def test_inside_of_a_shard_map_a_device_counts():
  automatic = (jax.sharding.AxisType.Auto,)
  mesh = jax.sharding.AbstractMesh((4,), ('data',), axis_types=automatic)
  rows = jax.sharding.PartitionSpec('data')
  run = jax.shard_map(
    lambda x, w: x @ w,
    mesh=mesh,
    in_specs=(rows, jax.sharding.PartitionSpec()),
    out_specs=rows,
    check_vma=False,
  )
  assert count(run, X, W) == {'float32': ONE / 4}


def test_a_wide_model_has_six_for_each_weight_and_token():
  raw = tiny.with_blocks(tiny.raw_config('unused'))
  raw.model.width, raw.model.mlp_width, raw.model.layers = 512, 2048, 4
  raw.data.length = 64
  config = config_lib.parse(raw)
  task = config_lib.load('tasks', config.task.name, 'task.name')
  made = programs_lib.Programs(
    task.make(config, tokenizer.Bytes()),
    config,
    mesh_lib.make(devices=jax.devices()[:1]),
  )
  counts = sum(flops.count(made.trace_train(2, 64).jaxpr).values())
  like = made.states.like().params
  weights = sum(x.size for x in jax.tree.leaves(like))
  embedding = weights_of(like, 'embedding')
  # 0.2 % over it is measured: the recurrence, which has no weights.
  assert counts / (6 * (weights - embedding) * 2 * 64) == pytest.approx(1, 0.02)


def weights_of(like, name):
  """Of what is looked up and not multiplied."""
  return sum(
    x.size
    for path, x in jax.tree.leaves_with_path(like)
    if name in jax.tree_util.keystr(path)
  )


@pytest.mark.skipif(bool(library.lacking()), reason=library.lacking())
@pytest.mark.parametrize(
  ('module', 'options'),
  (
    (lstm, {}),
    (gru, {}),
    (gru, {'reset': 'before'}),
    (rhn, {'depth': 1}),
    (rhn, {'depth': 3}),
    (slstm, {'heads': 2}),
    (slstm, {'state_width': 65}),
  ),
)
def test_native_recurrences_count_as_the_scan_does(module, options):
  x = jnp.zeros((2, 5, 4))

  def both_ways(impl):
    cell = module.Cell(module.Config(**options), 4, base.Plan(impl))
    state = cell.init_state(2)
    variables = jax.eval_shape(cell.init, jax.random.key(0), state, x)
    loss = jax.grad(lambda v: jnp.sum(cell.apply(v, state, x)[1]))
    return flops.count(jax.make_jaxpr(loss)(variables))

  assert both_ways('native') == both_ways('scan')


def test_kernels_count_as_often_as_they_have_programs(monkeypatch):
  monkeypatch.setattr(target, '_used', target.GPUS['h100'])
  B, L, H, K, P = 2, 128, 3, 128, 64
  state, k, v = (jnp.zeros(x) for x in ((H, K, P), (L, H, K), (L, H, P)))
  inputs = (jnp.stack([x] * B) for x in (state, k, k, v, k))
  made = jax.make_jaxpr(
    lambda *x: gla.recurrence(*x, impl='pallas', operands='bfloat16')
  )(*inputs)
  # Of a chunk of a head, two tiles of keys: 22 products of `prepare`, one of
  # `states`, one of `outputs`; and scores times v.
  products = B * H * L // 64 * (2 * (22 + 1 + 1) + 1)
  assert flops.count(made) == {'bfloat16': products * 2 * 64**3}
