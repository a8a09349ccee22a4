"""Means, deviations, ratios and leaders, computed by hand."""

import json
import math

import pytest

from rnn_jax.experiments import summary
from tests.experiments import made


def scores(loss, accuracy):
  return {'loss': loss, 'accuracy': accuracy}


ROWS = made.rows(
  made.row('narrow', 0, scores(2.0, 0.50), seconds=4.0),
  made.row('narrow', 1, scores(4.0, 0.60), seconds=8.0),
  made.row('wide', 0, scores(2.5, 0.50), seconds=30.0),
  made.row('wide', 1, scores(2.9, 0.40), seconds=30.0),
  made.row('wide', 2),
  made.row('of another grid', 0, scores(0.0, 1.0)),
)


def test_figures_of_variants():
  result = summary.summarize(made.grid(), ROWS)
  assert [*result['variants']] == ['narrow', 'wide']
  narrow, wide = result['variants'].values()
  assert (narrow['done'], narrow['failed']) == (2, 0)
  assert (wide['done'], wide['failed']) == (2, 1)
  loss = narrow['figures']['loss']
  assert loss['mean'] == 3.0
  assert loss['deviation'] == pytest.approx(math.sqrt(2))
  assert loss['values'] == {0: 2.0, 1: 4.0}
  accuracy = wide['figures']['accuracy']
  assert accuracy['mean'] == pytest.approx(0.45)
  assert accuracy['deviation'] == pytest.approx(math.sqrt(0.005))
  assert wide['figures']['seconds']['mean'] == 30.0
  assert json.loads(json.dumps(result, allow_nan=False))


def test_ratios_are_to_the_means_of_the_baseline():
  result = summary.summarize(made.grid(), ROWS)['variants']
  assert result['wide']['ratios']['loss'] == pytest.approx(2.7 / 3.0)
  assert result['wide']['ratios']['seconds'] == pytest.approx(5.0)
  assert result['narrow']['ratios']['accuracy'] == 1.0
  without = summary.summarize(made.grid(baseline=''), ROWS)['variants']
  assert without['wide']['ratios'] == {}


def test_the_leader_is_the_one_on_the_better_side():
  loss, accuracy = summary.summarize(made.grid(), ROWS)['leaders']
  assert loss['order'] == ['wide', 'narrow']
  assert loss['difference'] == pytest.approx(0.3)
  assert loss['spread'] == pytest.approx(1.6 / math.sqrt(2))  # of -.5 and 1.1
  assert loss['exceeds'] is False
  assert accuracy['order'] == ['narrow', 'wide']
  assert accuracy['difference'] == pytest.approx(0.1)
  assert accuracy['spread'] == pytest.approx(0.2 / math.sqrt(2))  # of 0 and .2
  assert accuracy['exceeds'] is False
  assert loss['level'] == accuracy['level'] == ['narrow', 'wide']


def test_one_seed_has_no_deviation():
  rows = {key: row for key, row in ROWS.items() if key != ('wide', 1)}
  result = summary.summarize(made.grid(), rows)
  assert result['variants']['wide']['figures']['loss'] == {
    'mean': 2.5,
    'deviation': None,
    'values': {0: 2.5},
  }
  assert result['leaders'][0]['spread'] is None
  assert result['leaders'][0]['exceeds'] is None


def test_failures_and_scores_that_are_missing_or_not_finite():
  rows = made.rows(
    made.row('narrow', 0, {'loss': math.nan, 'f1': 0.1}),
    made.row('narrow', 1, scores(3.0, math.inf)),
    made.row('wide', 7, error='train: it broke'),
  )
  result = summary.summarize(made.grid(), rows)
  assert result['failures'] == [
    {
      'variant': 'wide',
      'seed': 7,
      'status': 'failed',
      'error': 'train: it broke',
    }
  ]
  assert [(m['runs'], m['metric']) for m in result['missing']] == [
    ([['narrow', 0]], 'loss'),
    ([['narrow', 0]], 'accuracy'),
    ([['narrow', 1]], 'accuracy'),
  ]
  assert result['missing'][0]['scores'] == ['loss', 'f1']
  figures = result['variants']['narrow']['figures']
  assert figures['loss']['values'] == {1: 3.0}
  assert figures['accuracy']['mean'] is None
  assert result['leaders'][1] == {
    'metric': 'accuracy',
    'column': '',
    'order': [],
    'means': {},
  }
  assert json.dumps(result, allow_nan=False)
