"""A report as text, JSON, figures and TensorBoard events."""

import json
import math
import re

import numpy as np
import pytest
import tensorboardX

from rnn_jax.inspection import activations
from rnn_jax.inspection import report
from rnn_jax.inspection import summary

COUNTS = np.zeros(activations.BINS, np.int64)
COUNTS[[500, 502]] = 3, 1
SIZES = {
  'weight_norm': 2.0,
  'gradient_norm': 0.5,
  'gradient_norm_largest': 0.75,
  'update_norm': 0.01,
}


def inspection(**changes):
  return {
    'step': 7,
    'split': 'validation',
    'batches': 2,
    'tokens': 1234,
    'loss': 1.25,
    'learning_rate': 1e-3,
    'recurrent': True,
    'parts': [
      {'part': 'layer 0', 'parameters': 4321, **SIZES, 'ratio': 0.005},
      {'part': 'head', 'parameters': 5, **SIZES, 'ratio': None},
    ],
    'gates': [
      {
        'layer': 0,
        'gate': 'keep',
        'mean': 0.9,
        'low': 0.1,
        'median': 0.9,
        'high': 0.95,
        'above': 0.25,
        'below': 0.0,
        'bins': COUNTS,
      }
    ],
    'half_lives': [
      {'layer': 0, 'channels': 8, 'low': 1.5, 'median': 6.0, 'high': math.inf}
    ],
    'states': [
      {
        'layer': 0,
        'state': 'memory',
        'first': 1.0,
        'middle': 2.0,
        'last': 3.0,
        'largest': 3.0,
        'norms': [1.0, 2.0, 3.0],
      }
    ],
    'units': [
      {
        'layer': 0,
        'of': 'mlp',
        'units': 8,
        'dead': 2,
        'at_rest': 0.5,
        'which': [1, 6],
      }
    ],
    'experts': [
      {'layer': 0, 'experts': 4, 'least': 0.0, 'most': 1.75, 'idle': 1}
    ],
    'flow': [1.0, 0.5, 0.25],
    **changes,
  }


def test_the_text_has_each_table():
  text = re.sub(' +', ' ', report.markdown(inspection()))
  assert '1,234 predictions, loss 1.2500 nats' in text
  for line in (
    '| layer 0 | 4,321 | 2 | 0.5 | 0.75 | 0.01 | 0.005 |',
    '| 0 | keep | 0.9 | 0.1 | 0.9 | 0.95 | 25.0% | 0.0% |',
    '| 0 | memory | 1 | 2 | 3 | 3 |',
    '| 0 | mlp | 8 | 2 | 25.0% | 50.0% | 1 6 |',
    '| 0 | 4 | 0 | 1.75 | 1 |',
    '| 1+ | 0.5 |',
  ):
    assert line in text, text


def test_a_model_without_gates_and_units_has_no_such_tables():
  none = dict.fromkeys(('gates', 'units', 'half_lives', 'experts', 'flow'), [])
  text = report.markdown(inspection(**none))
  assert '## Gradients' in text and '## Norm of the state' in text
  lacking = 'Gates', 'Hidden', 'Half-life', 'Experts', 'Gradient of'
  for title in (f'## {name}' for name in lacking):
    assert title not in text


def test_a_model_without_states_is_reported():
  text = report.markdown(inspection(recurrent=False, states=[], flow=[]))
  assert 'Each step sees its whole row: no state is carried' in text
  assert 'sees its whole row' not in report.markdown(inspection())


def test_json_has_no_infinite_number():
  text = report.values(inspection())
  assert json.loads(json.dumps(text, allow_nan=False)) == text
  assert text['half_lives'][0]['high'] is None
  assert text['half_lives'][0]['median'] == 6
  assert 'bins' not in text['gates'][0]


def test_all_forms_are_written(tmp_path, monkeypatch):
  seen, histograms = {}, {}
  writer = tensorboardX.SummaryWriter
  monkeypatch.setattr(
    writer, 'add_scalar', lambda self, name, x, step: seen.update({name: x})
  )
  monkeypatch.setattr(
    writer,
    'add_histogram_raw',
    lambda self, name, **options: histograms.update({name: options}),
  )
  monkeypatch.setattr(
    writer,
    'add_histogram',
    lambda self, name, x, step: histograms.update({name: x}),
  )
  stacked = {
    'cell': {'kernel': np.ones((2, 3)), 'bias': np.full((2, 1), np.nan)}
  }
  report.write(inspection(), {'stack': {'blocks': stacked}}, tmp_path)
  names = {path.name for path in (tmp_path / 'inspection').iterdir()}
  figures = {f'{x}.png' for x in ('gradients', 'gates', 'states', 'flow')}
  assert names == figures | {'inspection.json', 'inspection.md'}
  assert seen['gradient_norm/layer_0'] == 0.5
  assert seen['dead_share/layer_0/mlp'] == 0.25
  assert seen['busiest_expert/layer_0'] == 1.75
  assert 'ratio/head' not in seen and seen['ratio/layer_0'] == 0.005
  assert histograms.keys() == {
    'gates/layer_0/keep',
    'gradients/layer_0/cell/kernel',
    'gradients/layer_1/cell/kernel',
  }
  gate = histograms['gates/layer_0/keep']
  assert gate['bucket_counts'] == [3, 0, 1] and gate['num'] == 4
  assert len(gate['bucket_limits']) == 3 and gate['global_step'] == 7
  assert gate['min'] == summary.edges()[500]
  assert gate['max'] == pytest.approx(summary.edges()[503])
