"""Widths whose rows have other bits aren't used; padding is never most."""

import jax
import numpy as np
import pytest

from rnn_jax.inference import series_rows
from rnn_jax.inference import series_steps
from rnn_jax.runs import bundle as bundle_lib
from tests.support import series


@pytest.fixture(scope='module', name='made')
def _made(tmp_path_factory):
  """A forecaster with a state of two layers and covariates, its parameters."""
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  series.with_covariates(series.frame()).to_csv(path, index=False)
  changes = {'model.layers': 2, 'model.mlp_width': 8} | series.COVARIATES
  bundle = series.bundle(path, **changes)
  model = bundle_lib.make_task(bundle.config, bundle.tokenizer).model
  return model, jax.device_put(bundle.params)


def rows_of(sizes, lengths, rng):
  """Rows of so many readings each."""
  M, B = sum(lengths), len(lengths)

  def numbers(*shape):
    return np.float32(rng.normal(size=shape))

  return series_rows.Rows(
    numbers(M, sizes.targets),
    numbers(M, sizes.calendar),
    np.array(lengths),
    numbers(B, sizes.horizon, sizes.known),
    numbers(M, sizes.inputs),
    rng.integers(0, 3, (B, len(sizes.categories))).astype(np.int32),
  )


def some(rows, n, start=0, stop=None):
  """Some readings of row n."""
  end = int(np.cumsum(rows.count_B)[n])
  own = slice(end - int(rows.count_B[n]), end)
  moving = [x[own][start:stop] for x in (*rows[:2], rows.inputs_MxC)]
  return series_rows.Rows(
    *moving[:2],
    np.array([len(moving[0])]),
    rows.known_BxHxK[n : n + 1],
    moving[2],
    rows.categories_BxS[n : n + 1],
  )


def read(reader, carry, rows):
  """(The new rows as one carry, the result)."""
  parts, result = reader.read(carry, rows)
  made = jax.tree.map(np.zeros_like, carry)
  reader.put_parts(made, np.arange(len(rows.count_B)), parts)
  return made, result


def bits(reader, carry, result=()):
  """The bytes of each row."""
  return [
    [
      x.tobytes()
      for x in (
        *jax.tree.leaves(reader.take(carry, np.array([n]))),
        *(x[n] for x in result),
      )
    ]
    for n in range(len(carry.x_BxD))
  ]


def test_rows_are_those_of_single_rows_at_all_widths(made):
  reader = series_rows.Reader(*made)
  rng = np.random.default_rng(0)
  lengths = rng.integers(0, 2 * series_steps.AT_ONCE, 19)
  lengths[:2] = 0, series_steps.AT_ONCE + 1
  rows = rows_of(made[0].sizes, lengths, rng)
  blank = reader.join([reader.fresh] * 19)
  carry, result = read(reader, blank, rows)
  together = bits(reader, carry, result)
  assert [*reader.parts(19)] == [(0, 16), (16, 1), (17, 1), (18, 1)]
  alone = [
    bits(reader, *read(reader, reader.fresh, some(rows, n)))[0]
    for n in range(19)
  ]
  assert together == alone
  assert len({tuple(own) for own in together}) > 10
  # A row without readings is as it was, and has the forecast that it had.
  nothing = [some(rows, n, 0, 0) for n in range(19)]
  nothing = series_rows.Rows(*map(np.concatenate, zip(*nothing, strict=True)))
  assert bits(reader, *read(reader, carry, nothing)) == together


def test_a_reading_in_each_call_makes_the_bits_of_one_call(made):
  reader = series_rows.Reader(*made)
  rows = rows_of(made[0].sizes, [5] * 17, np.random.default_rng(0))
  blank = reader.join([reader.fresh] * 17)
  wanted = bits(reader, *read(reader, blank, rows))
  # Of some rows of a carry, in another order.
  carry, at_B = reader.take(blank, np.zeros(40, int)), np.arange(17) * 2 + 3
  for n in range(5):
    each = [some(rows, row, n, n + 1) for row in range(17)]
    each = series_rows.Rows(*map(np.concatenate, zip(*each, strict=True)))
    parts, result = reader.read(carry, each, at_B)
    reader.put_parts(carry, at_B, parts)
  assert bits(reader, reader.take(carry, at_B), result) == wanted
  untouched = np.setdiff1d(np.arange(40), at_B)
  fresh = bits(reader, reader.fresh)
  assert bits(reader, reader.take(carry, untouched)) == fresh * 23


def test_rows_are_taken_and_put(made):
  reader = series_rows.Reader(*made)
  rng = np.random.default_rng(0)
  rows, other = (
    jax.tree.map(
      lambda x: np.float32(rng.normal(size=x.shape)),
      reader.join([reader.fresh] * count),
    )
    for count in (5, 2)
  )
  kept = reader.take(rows, np.array([1, 4, 0]))
  reader.put(rows, np.array([3, 2]), other)
  for place, wanted in ((3, (other, 0)), (2, (other, 1)), (4, (kept, 1))):
    got = reader.take(rows, np.array([place]))
    want = reader.take(wanted[0], np.array([wanted[1]]))
    assert bits(reader, got) == bits(reader, want)


def test_all_arrays_have_the_rows_first(made):
  model, _ = made
  for a, b in zip(
    *(jax.tree.leaves(series_steps.blank(model, B)) for B in (1, 3)),
    strict=True,
  ):
    assert len(a) == 1 and len(b) == 3 and a.shape[1:] == b.shape[1:]


def test_a_width_with_other_bits_is_not_used(made, monkeypatch):
  reader = series_rows.Reader(*made)
  asked = []

  def compare(narrow, wide):
    asked.append((narrow, wide))
    return wide != 16

  monkeypatch.setattr(reader.widths, '_compare', compare)
  assert [*reader.parts(5)] == [(n, 1) for n in range(5)]
  assert [*reader.parts(20)] == [(n, 1) for n in range(20)]
  singles = [(256 + n, 1) for n in range(44)]
  assert [*reader.parts(300)] == [(0, 128), (128, 128), *singles]
  assert asked == [(1, 16), (1, 128)]  # once each


def test_a_program_with_other_bits_is_not_used(made, monkeypatch):
  reader = series_rows.Reader(*made)
  rows = rows_of(made[0].sizes, [1], np.random.default_rng(0))
  assert len(reader.part(rows, np.array([0]), 0, 1).readings_NxBxT) == 1
  other = series_rows.Reader(*made)
  monkeypatch.setattr(other.widths, '_one_by_one', lambda given: 'other bits')
  given = other.part(rows, np.array([0]), 0, 1)
  assert len(given.readings_NxBxT) == series_steps.AT_ONCE
  assert [*other.parts(16)] == [(0, 16)]
