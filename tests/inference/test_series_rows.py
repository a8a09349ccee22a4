"""Widths whose rows have other bits aren't used; padding is never most."""

import jax
import numpy as np
import pytest

from rnn_jax.inference import series_rows
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


def row(sizes, count, rng):
  """A row of `count` readings."""

  def numbers(*shape):
    return np.float32(rng.normal(size=shape))

  return series_rows.Row(
    numbers(count, sizes.targets),
    numbers(count, sizes.calendar),
    numbers(sizes.horizon, sizes.known),
    numbers(count, sizes.inputs),
    rng.integers(0, 3, len(sizes.categories)).astype(np.int32),
  )


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
  lengths = rng.integers(0, 2 * series_rows.AT_ONCE, 19)
  lengths[:2] = 0, series_rows.AT_ONCE + 1
  rows = [row(made[0].sizes, n, rng) for n in lengths]
  blank = reader.join([reader.fresh] * 19)
  carry, result = reader.read(blank, rows)
  together = bits(reader, carry, result)
  assert [*reader.parts(19)] == [(0, 16), (16, 1), (17, 1), (18, 1)]
  alone = [bits(reader, *reader.read(reader.fresh, [own]))[0] for own in rows]
  assert together == alone
  assert len({tuple(own) for own in together}) > 10
  # A row without readings is as it was, and has the forecast that it had.
  nothing = [
    own._replace(
      readings_NxT=own.readings_NxT[:0],
      calendar_NxF=own.calendar_NxF[:0],
      inputs_NxC=own.inputs_NxC[:0],
    )
    for own in rows
  ]
  assert bits(reader, *reader.read(carry, nothing)) == together


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


def test_the_axes_are_those_of_the_rows(made):
  model, _ = made
  axes = jax.tree.leaves(series_rows.axes(model))
  for axis, a, b in zip(
    axes,
    jax.tree.leaves(series_rows.blank(model, 1)),
    jax.tree.leaves(series_rows.blank(model, 3)),
    strict=True,
  ):
    assert a.shape[axis] == 1 and b.shape[axis] == 3
  assert {*axes} == {0, 1}  # the stack's states have an axis of layers


def test_a_width_with_other_bits_is_not_used(made, monkeypatch):
  reader = series_rows.Reader(*made)
  asked = []

  def compare(narrow, wide):
    asked.append((narrow, wide))
    return wide != 16

  monkeypatch.setattr(reader, '_compare', compare)
  assert [*reader.parts(5)] == [(n, 1) for n in range(5)]
  assert [*reader.parts(20)] == [(n, 1) for n in range(20)]
  assert [*reader.parts(300)] == [(0, 256)] + [(256 + n, 1) for n in range(44)]
  assert asked == [(1, 16), (1, 256)]  # once each
