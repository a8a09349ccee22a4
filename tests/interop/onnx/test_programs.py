"""What is exported of models of series, against the models themselves.

Those of texts and images are in tests/interop/formats/test_onnx.py.
"""

import json

import jax
import numpy as np
import onnx
import onnx.reference
import pytest

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import series as series_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import graphs
from tests.support import labelled_series
from tests.support import series

B, L, CUT = 2, 6, 5
COVARIATES = {
  'known_BxLxHxK': 'known',
  'inputs_BxLxC': 'inputs',
  'categories_BxLxS': 'categories',
}
FORECASTERS = {  # the options, and the columns beside
  'quantiles': ({'task.head': 'quantiles'}, None),
  'student_t': ({'task.head': 'student_t'}, None),
  'counts': (
    {'task.head': 'negative_binomial', 'data.scaling': 'counts'},
    None,
  ),
  'several targets': (series.TARGETS, series.with_targets),
  'covariates': (series.COVARIATES, series.with_covariates),
  'known columns only': (
    {'data.known': ('price', 'promo')},
    series.with_covariates,
  ),
  'members': ({'task.members': 2}, None),
  'seasonal_ar': ({'task.anchor': 'seasonal_ar', 'data.window': 24}, None),
}


def close(made, wanted):
  assert made.shape == wanted.shape
  np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def draw(shapes):
  """Inputs by name; one reading and one covariate are missing."""
  rng = np.random.default_rng(0)
  made = {
    name: (
      rng.integers(0, 3, shape).astype(np.int32)
      if name == 'categories_BxLxS'
      else rng.normal(2, 1, shape).astype(np.float32)
    )
    for name, shape in shapes.items()
  }
  made['readings_BxLxW'][0, 2, 3:] = np.nan
  if 'inputs_BxLxC' in made:
    made['inputs_BxLxC'][1, 3, 0] = np.nan
  return made


def shapes_of(folder):
  """The shapes of a row's inputs, but those of the state."""
  interface = json.loads((folder / 'interface.json').read_text())
  sizes = {'B': B, 'L': L}
  return {
    name: [
      sizes.get(x.strip()) or int(x) for x in like.split('[')[1][:-1].split(',')
    ]
    for name, like in interface['inputs']['row'].items()
    if not name.startswith('state.')
  }


def part(inputs, *cut):
  return {name: x[:, slice(*cut)] for name, x in inputs.items()}


def in_parts(folder, inputs):
  """The outputs of a row that ends with a step, and those of that step."""
  row, step = (
    graphs.open_graph(folder / f'{name}.onnx') for name in ('row', 'step')
  )
  state, made = graphs.run(row, graphs.begin(folder, B), **part(inputs, CUT))
  _, last = graphs.run(step, state, **part(inputs, CUT, None))
  return made, last


def by_reference(folder, inputs, state):
  model = onnx.load(folder / 'row.onnx')
  evaluator = onnx.reference.ReferenceEvaluator(model)
  names = [x.name for x in model.graph.output if 'next_' not in x.name]
  return dict(zip(names, evaluator.run(names, inputs | state), strict=True))


@pytest.mark.parametrize('name', FORECASTERS)
def test_a_forecaster(name, tmp_path):
  options, besides = FORECASTERS[name]
  if besides:
    path = tmp_path / 'table.csv'
    besides(series.frame()).to_csv(path, index=False)
    bundle = series.bundle(path, **options)
  else:
    tokenizer = tokenizer_lib.Scales('window', False, {})
    if name == 'counts':
      tokenizer = tokenizer_lib.Scales('counts', False, {})
    bundle = bundles.make(series.raw_config('gone', **options), tokenizer)
  folder = graphs.export(bundle, tmp_path / 'model')
  model = bundle_lib.make_task(bundle.config, bundle.tokenizer).model
  inputs = draw(shapes_of(folder))
  own = series_lib.Covariates(*map(inputs.get, COVARIATES))
  given = inputs['readings_BxLxW'], inputs['calendar_BxLxF'], None, own

  @jax.jit
  def run(params):
    state = model.apply({}, B, method='init_state')
    return model.apply({'params': params}, state, *given)[1]

  forecasts = run(bundle.params)
  loc, scale = (np.asarray(x) for x in forecasts[1:])
  wanted = [np.asarray(x) for x in forecasts.numbers]
  units = [(scale, loc)] * len(wanted)
  if name == 'student_t':
    units[1:] = [(scale, 0), (1, 0)]
  if name == 'counts':
    units[1:] = [(1, 0)]
  numbers = [x * s + c for x, (s, c) in zip(wanted, units, strict=True)]
  made, last = (x['numbers_BxLxHxO'] for x in in_parts(folder, inputs))
  close(np.concatenate([made, last], 1), np.stack(numbers, -1))
  reference = by_reference(folder, inputs, graphs.begin(folder, B))
  close(reference['numbers_BxLxHxO'], np.stack(numbers, -1))
  facts = json.loads((folder / 'interface.json').read_text())['series']
  assert facts['targets'] == [*bundle.config.data.readings]
  assert facts['known'] == [*bundle.config.data.known]


LABELLED = {  # the output of a model, from that of ours
  'series_classification': ('logits_BxC', lambda x: x[:, -1]),
  'series_regression': ('number_B', lambda x: x[:, -1, 0]),
  'series_tagging': ('logits_BxLxC', lambda x: x),
}


@pytest.mark.parametrize(
  ('task', 'bidirectional'),
  (*((task, False) for task in LABELLED), ('series_classification', True)),
)
def test_labelled_series(task, bidirectional, tmp_path):
  path, name = tmp_path / 'table.csv', labelled_series.TASKS[task]
  labelled_series.frame(label=name).to_csv(path, index=False)
  changes = {'model.bidirectional': bidirectional}
  if task != 'series_tagging':
    changes['task.pooling'] = 'concat'
  raw = labelled_series.raw_config(path, task, **changes)
  config, corpus = labelled_series.corpus(raw)
  task_lib = bundle_lib.make_task(config, corpus.tokenizer)
  params = jax.device_get(task_lib.init_parameters(jax.random.key(0)))
  bundle = bundle_lib.Bundle(config, corpus.tokenizer, params)
  folder = graphs.export(bundle, tmp_path / 'model')
  inputs = draw({'readings_BxLxW': (B, L, config.data.widths[0])})
  model = task_lib.model

  @jax.jit
  def run(params, readings):
    state = model.apply({}, B, method='init_state')
    return model.apply({'params': params}, state, readings)[1]

  output, own = LABELLED[task]
  wanted = own(np.asarray(run(params, inputs['readings_BxLxW'])))
  state = graphs.begin(folder, B)
  row = graphs.open_graph(folder / 'row.onnx')
  _, made = graphs.run(row, state, **inputs)
  close(made[output], wanted)
  close(by_reference(folder, inputs, state)[output], wanted)
  if not bidirectional:
    _, last = in_parts(folder, inputs)
    close(last[output], wanted[:, CUT:] if wanted.ndim == 3 else wanted)
  interface = json.loads((folder / 'interface.json').read_text())
  assert interface['series']['channels'] == [*config.data.channels]
  if task == 'series_regression':
    assert interface['series']['number']['scale'] > 0
  else:
    assert interface['classes'] == [*config.data.classes]
  if task == 'series_classification':
    close(made['probabilities_BxC'], np.asarray(jax.nn.softmax(wanted)))
