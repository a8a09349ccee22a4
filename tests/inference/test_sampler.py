"""Sampling with options for each row; test_sampling.py has the frequencies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import sampler
from rnn_jax.inference import sampling

B, V = 6, 70


def rows(**columns):
  """Options of B rows."""
  table = sampling.make_table(B)
  table.active_B[:] = True
  table.seed_B[:] = np.arange(B) + 7
  for name, values in columns.items():
    getattr(table, name)[:] = values
  return table


def logits(seed=0, scale=3.0):
  rng = np.random.default_rng(seed)
  return np.float32(rng.normal(0, scale, (B, V)))


ANY = sampling.any_kind(V)
choose = jax.jit(functools.partial(sampler.choose, kind=ANY))
adjust = jax.jit(sampler.adjust)
keys = jax.jit(sampler.keys)


def test_keys_follow_from_seed_and_index():
  table = rows(index_B=range(B), seed_high_B=[0, 0, 0, 7, 7, 8])
  table.seed_B[:] = 5
  low = jax.random.key(5)
  for n, got in enumerate(keys(table)):
    high = int(table.seed_high_B[n])
    key = jax.random.fold_in(low, high) if high else low
    wanted = jax.random.fold_in(key, n)
    assert np.array_equal(*map(jax.random.key_data, (got, wanted)))


def test_tokens_are_those_of_a_program_of_one_kind_in_any_mixture():
  """Every row has options of its own; some need a sort, some don't."""
  kinds = (
    sampling.Sampling(0.0),
    sampling.Sampling(0.7),
    sampling.Sampling(1.3, 5),
    sampling.Sampling(1.0, 66),
    sampling.Sampling(1.0, 0, 0.6),
    sampling.Sampling(2.0, 30, 0.8),
  )
  plain = jax.jit(sampler.choose, static_argnums=3)
  differ = 0
  for seed in range(25):
    z = logits(seed)
    table = rows(
      temperature_B=[kind.temperature for kind in kinds],
      top_k_B=[kind.top_k for kind in kinds],
      top_p_B=[kind.top_p for kind in kinds],
    )
    table.seed_B[:] = seed
    table.index_B[:] = range(B)
    key_B = keys(table)
    wanted = [
      int(plain(key_B, z, table, kind.kind(V))[n])
      for n, kind in enumerate(kinds)
    ]
    got = choose(key_B, z, table).tolist()
    assert got == wanted
    differ += len(set(got)) > 2
  assert differ > 10


def test_a_row_does_not_depend_on_the_others_options():
  table = rows(temperature_B=1.0)
  key_B = keys(table)
  wanted = choose(key_B, logits(), table)
  for changes in (
    {'top_k_B': [0, 3, 0, 70, 0, 0]},
    {'top_p_B': [1, 0.5, 1, 0.9, 1, 1]},
    {'temperature_B': [1, 0, 1, 0, 1, 1]},
    {'min_p_B': [0, 0.9, 0, 0.9, 0, 0]},
  ):
    got = choose(key_B, logits(), rows(**({'temperature_B': 1.0} | changes)))
    assert got[jnp.array([0, 2, 4, 5])].tolist() == (
      wanted[jnp.array([0, 2, 4, 5])].tolist()
    )
    assert got.tolist() != wanted.tolist()


def test_min_p_keeps_what_is_likely_enough():
  z = np.full((B, V), -9.0, np.float32)
  z[:, :4] = np.log([0.5, 0.3, 0.12, 0.08])
  seen = set()
  for seed in range(40):
    table = rows(min_p_B=[0.0, 0.2, 0.5, 0.2, 0.2, 1.0])
    table.top_k_B[3] = 3
    table.top_p_B[4] = 0.75
    table.seed_B[:] = np.arange(B) * 100 + seed
    seen |= {*enumerate(choose(keys(table), z, table).tolist())}
  allowed = [{*range(V)}, {0, 1, 2}, {0, 1}, {0, 1, 2}, {0, 1}, {0}]
  assert all(token in allowed[row] for row, token in seen)
  assert {(1, 2), (2, 1), (3, 2), (4, 1), (5, 0)} <= seen


def test_adjusted_logits_are_those_of_the_formulas():
  rng = np.random.default_rng(1)
  prompt_BxV = rng.random((B, V)) < 0.2
  count_BxV = rng.poisson(0.3, (B, V))
  bias_BxV = rng.normal(size=(B, V)).astype('float32')
  allowed_BxV = rng.random((B, V)) < 0.5
  table = rows(
    biased_B=[0, 1, 0, 0, 0, 1],
    repetition_B=[1, 1, 1.5, 1, 1, 0.5],
    presence_B=[0, 0, 0, 0.7, 0, -1],
    frequency_B=[0, 0, 0, 0.3, 0, 2],
    constrained_B=[0, 0, 0, 0, 1, 0],
    boundary_B=[-1, 3, -1, 3, -1, 3],
    least_B=[9, 0, 0, 5, 0, 4],
  )
  padded = np.pad(allowed_BxV, [(0, 0), (0, -V % 32)])
  words_BxM = np.packbits(padded, 1, bitorder='little').view(np.uint32)
  z = logits()
  position_B = np.full(B, 4, np.int32)
  memory = sampler.Memory(
    jnp.array(prompt_BxV), jnp.array(count_BxV), jnp.array(bias_BxV)
  )
  got = np.asarray(adjust(z, table, position_B, memory, words_BxM))
  wanted = np.array(z, np.float64)
  for row in range(B):
    x = wanted[row]
    x += table.biased_B[row] * bias_BxV[row]
    r = table.repetition_B[row]
    repeats = prompt_BxV[row] | (count_BxV[row] > 0)
    x[repeats] = np.where(x[repeats] > 0, x[repeats] / r, x[repeats] * r)
    x -= table.frequency_B[row] * count_BxV[row]
    x -= table.presence_B[row] * (count_BxV[row] > 0)
  wanted[3, 3] = -np.inf  # before its least length
  wanted[4, ~allowed_BxV[4]] = -np.inf
  np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
  assert got[0].tobytes() == np.asarray(z)[0].tobytes()


def test_log_probabilities_are_the_models():
  z = logits()
  token_B = jnp.arange(B, dtype=jnp.int32)
  reference = np.asarray(jax.nn.log_softmax(z))
  run = jax.jit(functools.partial(sampler.logprobs, kind=ANY))
  for wanted in (0, 4):
    table = rows(alternatives_B=wanted, temperature_B=0.1)
    chosen_B, best_BxK, best_logprob_BxK = run(z, token_B, table)
    np.testing.assert_allclose(
      chosen_B, reference[range(B), range(B)], rtol=1e-5
    )
    assert best_BxK.shape == (B, sampling.ALTERNATIVES)
    if wanted:
      order = np.argsort(-reference)[:, : sampling.ALTERNATIVES]
      assert best_BxK.tolist() == order.tolist()
      np.testing.assert_allclose(
        best_logprob_BxK, np.take_along_axis(reference, order, 1), rtol=1e-5
      )
    else:
      assert not np.any(best_BxK)


def test_packed_options_are_the_same():
  rng = np.random.default_rng(0)
  table = sampling.make_table(B)
  for column in table:
    column[:] = rng.integers(0, 2, B) if column.dtype == bool else rng.random(B)
    if column.dtype in (np.int32, np.uint32):
      limits = np.iinfo(column.dtype)
      column[:] = rng.integers(limits.min, limits.max, B, endpoint=True)
  table.seed_B[0] = 2**32 - 1
  unpacked = jax.jit(sampling.unpack)(sampling.pack(table))
  for got, wanted in zip(unpacked, table, strict=True):
    assert got.dtype == wanted.dtype
    assert np.asarray(got).tobytes() == wanted.tobytes()
