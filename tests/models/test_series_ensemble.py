"""An ensemble is the mean of its members, each trained as if by itself."""

import jax
import numpy as np
import pytest

from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.models import series_ensemble
from rnn_jax.runs import bundle as bundle_lib
from tests.support import draws
from tests.support import labelled_series
from tests.support import series

MEMBERS = 3


@pytest.fixture(scope='module', name='path')
def _path(tmp_path_factory):
  path = tmp_path_factory.mktemp('data') / 'series.csv'
  series.frame().to_csv(path, index=False)
  return path


@pytest.fixture(scope='module', name='bundle')
def _bundle(path):
  return series.bundle(path, **{'task.members': MEMBERS})


@pytest.fixture(scope='module', name='batch')
def _batch(path):
  config, corpus = series.corpus(series.raw_config(path))
  steps = corpus.examples(config.data, 'train').read(0, 10, 30)
  batch = rows_lib.blank_series(1, 19, config.data.widths)
  rows_lib.write_series(batch, 0, 0, steps)
  return batch


def alone(path):
  """The task of one member."""
  config, corpus = series.corpus(series.raw_config(path))
  return bundle_lib.make_task(config, corpus.tokenizer)


def test_a_forecast_is_the_mean_of_the_members(path, bundle, batch):
  task, one = bundle_lib.make_task(bundle.config, bundle.tokenizer), alone(path)
  assert isinstance(task.model, series_ensemble.Ensemble)
  given = batch.readings_BxLxW, batch.calendar_BxLxF

  def run(task, params):
    variables, state = {'params': params}, task.init_state(1)
    return jax.jit(task.model.apply)(variables, state, *given)[1]

  made = run(task, bundle.params)
  each = [run(one, bundle.params[f'member_{n}']) for n in range(MEMBERS)]
  for got, *own in zip(made.numbers, *(x.numbers for x in each), strict=True):
    np.testing.assert_allclose(got, np.mean(own, 0), rtol=1e-5, atol=1e-5)
    assert np.ptp(own, 0).max() > 0.1


def test_a_member_learns_as_if_by_itself(path, bundle, batch):
  """Its gradient is that of its own loss, by the number of members."""
  task, one = bundle_lib.make_task(bundle.config, bundle.tokenizer), alone(path)

  def gradient(task, params):
    def objective(params):
      return task.loss(params, task.init_state(1), batch)[0]

    return jax.jit(jax.grad(objective))(params)

  whole = gradient(task, bundle.params)
  own = gradient(one, bundle.params['member_1'])
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(
      MEMBERS * a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max()
    ),
    whole['member_1'],
    own,
  )


def test_a_stream_of_an_ensemble_is_its_series_bit_for_bit(path, bundle):
  model = forecast_lib.Forecaster(bundle)
  whole = model.read_file(str(path), 'path').series[0]
  values = whole.values_NxT
  stream = model.begin(whole._replace(values_NxT=values[:-3]))
  for reading in values[-3:, 0]:
    stream = model.observe(stream, reading)
  got, wanted = model.forecast(stream), model.forecast(model.begin(whole))
  # The series' scale is that of the run, so that both have the same.
  assert got.quantiles_HxQ.tobytes() == wanted.quantiles_HxQ.tobytes()
  assert (np.diff(got.quantiles_HxQ, axis=1) >= 0).all()


def labelled(folder, task, **changes):
  """(the task of labelled series, its parameters, a batch of one)."""
  path = folder / f'{task}.csv'
  label = labelled_series.TASKS[task]
  labelled_series.frame(label=label).to_csv(path, index=False)
  raw = labelled_series.raw_config(path, task, **changes)
  config, corpus = labelled_series.corpus(raw)
  made = bundle_lib.make_task(config, corpus.tokenizer)
  steps = corpus.examples(config.data, 'train').read(2)
  batch = rows_lib.blank_series(1, len(steps.weights_L), config.data.widths)
  rows_lib.write_series(batch, 0, 0, steps)
  return made, draws.parameters(made.init_parameters), batch


@pytest.mark.parametrize('name', labelled_series.TASKS)
def test_labels_are_of_the_mean_of_members(tmp_path, name):
  """And each member has the gradient of its own loss, by their number."""
  pooled = {} if name == 'series_tagging' else {'task.pooling': 'concat'}
  one, _, batch = labelled(tmp_path, name, **pooled)
  many, params, _ = labelled(
    tmp_path, name, **pooled, **{'task.members': MEMBERS}
  )

  def run(task, params, method='__call__'):
    given = task.init_state(1), batch.readings_BxLxW
    return task.model.apply({'params': params}, *given, method=method)[1]

  def gradient(task, params):
    def objective(params):
      objective, (sums, _) = task.loss(params, task.init_state(1), batch)
      return objective, sums

    return jax.jit(jax.grad(objective, has_aux=True))(params)

  own = [params[f'member_{n}'] for n in range(MEMBERS)]
  for method, combine in (('__call__', np.mean), ('pooled', np.concatenate)):
    each = [run(one, x, method) for x in own]
    axis = 0 if combine is np.mean else -1
    wanted = combine(each, axis)
    np.testing.assert_allclose(
      run(many, params, method), wanted, rtol=1e-4, atol=1e-4
    )
    assert np.ptp(each, 0).max() > 0.01
  got, sums = gradient(many, params)
  alone, of_one = gradient(one, own[1])
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(
      MEMBERS * a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max()
    ),
    got['member_1'],
    alone,
  )
  losses = [gradient(one, x)[1]['objective'] for x in own]
  np.testing.assert_allclose(sums['objective'], np.mean(losses), rtol=1e-4)
  assert sums['loss'] < sums['objective']  # of the mean, by Jensen
  assert sums['weight'] == of_one['weight']


def test_parameters_of_all_members_have_axes(bundle, tmp_path):
  """Each path matches one of the patterns."""
  import fnmatch

  forecaster = bundle_lib.make_task(bundle.config, bundle.tokenizer)
  changes = {'task.members': 2}
  labels, drawn, _ = labelled(tmp_path, 'series_classification', **changes)
  for task, params in ((forecaster, bundle.params), (labels, drawn)):
    patterns = [*task.logical_axes()]
    for path, _ in jax.tree_util.tree_leaves_with_path(params):
      name = '/'.join(key.key for key in path)
      assert any(fnmatch.fnmatch(name, x) for x in patterns), name
    axes, state = task.state_axes(), task.init_state(2)
    assert len(jax.tree.leaves(axes)) == len(jax.tree.leaves(state))
