"""How the chunked form lays out time; its numbers are in test_gla."""

import functools

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.ops.gla import chunked as gla_chunked


def inputs(L, decays):
  state, wide = jnp.zeros((1, 1, 4, 3)), jnp.zeros((1, L, 1, 4))
  return state, wide, wide, wide[..., :3], wide[..., :decays]


def kept(L, chunk_length, decays):
  """(chunks, their length) that the forward pass of L steps stores."""

  def forward(*arrays):
    return jax.vjp(lambda *x: gla_chunked.run(*x, chunk_length), *arrays)[1]

  shapes = [
    x.shape
    for x in jax.tree.leaves(jax.eval_shape(forward, *inputs(L, decays)))
  ]
  (chunks,) = (shape[0] for shape in shapes if shape[1:] == (1, 4, 3))
  (steps,) = {shape[1] for shape in shapes if shape[2:] == (1, 4)}
  return chunks, steps // chunks


@pytest.mark.parametrize(
  ('L', 'chunk_length', 'chunks', 'length'),
  (
    (128, 128, 1, 128),
    (129, 128, 2, 80),  # two equal ones of whole blocks, not 128 and 1
    (5, 128, 1, 16),
    (512, 64, 8, 64),
    (7, 3, 3, 3),  # blocks of three steps
  ),
)
def test_chunks_are_as_short_as_possible(L, chunk_length, chunks, length):
  assert kept(L, chunk_length, decays=4) == (chunks, length)


def test_one_decay_per_head_has_longer_blocks():
  assert kept(5, 128, decays=1) == (1, 32)


def test_padding_does_not_change_the_state():
  state, *steps = inputs(5, decays=4)
  run = jax.jit(functools.partial(gla_chunked.run, chunk_length=128))
  last, y = run(state + 2.0, *steps)
  assert y.shape == (1, 5, 1, 3)
  assert jnp.array_equal(last, state + 2.0)  # gates of 1, nothing written
