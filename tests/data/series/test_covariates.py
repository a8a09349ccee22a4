"""What steps know besides readings, against plain slices; what is refused."""

import numpy as np
import pandas as pd
import pytest

from rnn_jax import errors
from rnn_jax.data.series import covariates
from rnn_jax.data.series import documents as series_lib
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.data.series import scaling
from rnn_jax.data.series import tables
from tests.support import series

OPTIONS = tables.Options(
  known=('price',), observed=('rain',), static=('size', 'region')
)


@pytest.fixture(name='path')
def _path(tmp_path):
  path = tmp_path / 'series.csv'
  series.with_covariates(series.frame()).to_csv(path, index=False)
  return path


def test_steps_are_plain_slices(path):
  """Known of the horizon and a season before it, observed up to the step."""
  raw = series.raw_config(path, **series.COVARIATES)
  config, corpus = series.corpus(raw)
  assert config.data.categories == ('region',)
  assert config.data.category_sizes == (2,)
  made = corpus.examples(config.data, 'train')
  frame = series.with_covariates(series.frame())
  own = frame[frame.unique_id == 's1'].reset_index()
  train = own[:50]
  price = (own.price - train.price.mean()) / train.price.std(ddof=0)
  rain = (own.rain - train.rain.mean()) / train.rain.std(ddof=0)
  rows = np.stack([price, own.promo, rain], 1)[:50]
  outside = np.full((20, 3), np.nan)
  rows = np.concatenate([outside, rows, outside])
  start, H, season = 3, config.data.horizon, config.data.season
  steps = made.read(1, start, 50)
  for n in range(len(steps.weights_L)):
    t = 20 + start + n
    size = 0.0  # of 0, 10, 20
    np.testing.assert_allclose(
      steps.inputs_LxC[n], [*rows[t], size], rtol=1e-5, atol=1e-6
    )
    known = rows[t + 1 : t + 1 + H, :2]
    before = rows[t + 1 - season : t + 1 - season + H, :2]
    np.testing.assert_allclose(
      steps.known_LxHxK[n], np.concatenate([known, before], 1), rtol=1e-5
    )
    assert steps.categories_LxS[n].tolist() == [2]  # north, south


def test_a_horizon_of_several_seasons_looks_back_over_as_many():
  own = covariates.Scaled(
    0,
    np.arange(40, dtype=np.float32)[:, None],
    (scaling.Scale(),),
    np.zeros(0, np.float32),
    np.zeros(0, np.int32),
  )

  class Data:
    horizon, season = 7, 3

  steps = own.steps((10, 11), 1, Data)
  ahead, before = steps.known_LxHxK[0].T
  assert ahead.tolist() == [11, 12, 13, 14, 15, 16, 17]
  assert before.tolist() == [8, 9, 10, 8, 9, 10, 8]


def test_scales_are_of_the_training_part(path):
  _, corpus = series.corpus(series.raw_config(path, **series.COVARIATES))
  frame = series.with_covariates(series.frame())
  later = frame.groupby('unique_id').cumcount() >= 50
  frame.loc[later, ['price', 'rain']] = 1e6
  frame.to_csv(path, index=False)
  _, other = series.corpus(series.raw_config(path, **series.COVARIATES))
  assert corpus.tokenizer.spec() == other.tokenizer.spec()


@pytest.mark.parametrize(
  ('values', 'loc', 'scale'),
  (
    ([0, 1, 1, np.nan], 0, 1),  # a flag
    ([0, 0], 0, 1),
    ([], 0, 1),
    ([4, 4, 4], 4, 4),  # a change of a constant is a part of it
    ([-2, -2], -2, 2),
    ([1, 3, np.nan], 2, 1),
    ([-1e300, 1e300], 0, 1e300),
  ),
)
def test_scales_of_covariates(values, loc, scale):
  made = scaling.fit_covariate(np.array(values, float))
  np.testing.assert_allclose([made.loc, made.scale], [loc, scale])


def test_documents_keep_covariates():
  own = panel_lib.Series(
    'a',
    5,
    np.arange(6.0).reshape(3, 2),
    np.arange(8.0).reshape(4, 2),
    ('x', 'ü'),
  )
  reader = series_lib.InMemorySeries([own], [2])
  document = reader.read(0, 0, int(reader.sizes[0]))
  made = series_lib.content(document)
  assert (made.start, made.begin, made.static) == (5, 2, ('x', 'ü'))
  np.testing.assert_array_equal(made.values_NxT, own.values_NxT)
  np.testing.assert_array_equal(made.covariates_MxC, own.covariates_MxC)
  assert len(reader.read(0, 0, 10**6)) == reader.sizes[0]


def test_categories_are_the_same_text_in_all_tables(tmp_path):
  """Of whole numbers with a decimal point, missing ones, and none."""
  frame = pd.DataFrame(
    {
      'unique_id': ['a', 'a', 'b'],
      'y': [1.0, 2, 3],
      'price': 1.0,
      'rain': np.nan,
      'size': [7.0, np.nan, np.nan],
      'region': pd.Categorical(['x', 'x', None]),
    }
  )
  frame.to_csv(tmp_path / 't.csv', index=False)
  for raws in (
    tables.of_frame(frame, OPTIONS),
    tables.of_frame(frame.astype({'size': 'Int64'}), OPTIONS),
    tables.read(str(tmp_path / 't.csv'), 'k', OPTIONS),
  ):
    assert raws[0].static == ('7', 'x') and raws[1].static == ('', '')
    assert raws[0].covariates_NxC.shape == (2, 2)
    assert np.isnan(raws[0].covariates_NxC[:, 1]).all()


def test_categories_may_be_numbers(path):
  changes = {'data.static': ('size', 'unique_id'), 'data.categories': ('size',)}
  with pytest.raises(errors.InputError, match="has 'unique_id', not all"):
    series.corpus(series.raw_config(path, **changes))
  changes['data.categories'] = ('unique_id', 'size')
  config, corpus = series.corpus(series.raw_config(path, **changes))
  assert config.data.categories == ('size', 'unique_id')
  assert corpus.tokenizer.categories['size'] == ['0', '10', '20']
  steps = corpus.examples(config.data, 'train').read(2, 0, 4)
  assert (steps.categories_LxS == 3).all()
  assert steps.known_LxHxK.shape[-1] == steps.inputs_LxC.shape[-1] == 0


def test_a_number_far_from_training_is_refused():
  own = covariates.Scaled(
    0, np.zeros((0, 1)), (scaling.Scale(0, 1e-3),), np.zeros(0), np.zeros(0)
  )
  with pytest.raises(errors.InputError, match='covariate is 1e.13, more than'):
    own.extended(np.array([[1.0], [1e13]]))


HEAD = 'unique_id,ds,y,price,rain,size,region\n'
DAY = 'a,2026-01-01,1,2,3,4,x\n'
HOSTILE = {
  'text': (HEAD + DAY + 'a,2026-01-02,1,low,3,4,x\n', r"t.csv:3: .*'low'"),
  'infinity': (
    HEAD + DAY + 'a,2026-01-02,1,2,inf,4,x\n',
    r"t.csv:3: column 'rain' has inf",
  ),
  'two regions': (
    HEAD + DAY + 'a,2026-01-02,1,2,3,4,z\n',
    r"t.csv:3: series 'a' has 'z' in .*'region', and 'x' in line 2",
  ),
  'no column': ('unique_id,ds,y,price\na,2026-01-01,1,2\n', "observed='rain'"),
  'wide': ('ds,price,rain\n2026-01-01,1,2\n', "value='y'"),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_a_bad_table_is_refused_with_its_place(tmp_path, name):
  content, message = HOSTILE[name]
  (tmp_path / 't.csv').write_text(content)
  with pytest.raises(errors.InputError, match=message):
    tables.read(str(tmp_path / 't.csv'), 'data.path', OPTIONS)
  with pytest.raises(errors.InputError, match='has readings only'):
    tables.of_frame(np.ones(3), OPTIONS)


def test_counts_are_whole(tmp_path):
  for wrong in ('2.5', '-1'):
    path = tmp_path / 't.csv'
    path.write_text(f'ds,y\n2026-01-01,3\n2026-01-02,\n2026-01-03,{wrong}\n')
    with pytest.raises(errors.InputError, match=rf't.csv:4: .*{wrong}.*count'):
      tables.read(str(path), 'k', tables.Options(counts=True))


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'data.known': ('price', 'y')}, "data.known=.*'y' is also in data.value"),
    ({'data.observed': ('price',)}, "'price' is also in data.known"),
    ({'data.table': 'columns'}, "data.table='columns': data.known"),
    ({'data.categories': ('price',)}, "'price' is not in data.static"),
    ({'data.categories': ('size',)}, "data.categories=.*'region', not all"),
    ({'data.category_sizes': (3,)}, r'data.category_sizes=\(3,\): .*\(2,\)'),
    ({'data.known': ('cost',)}, "data.known='cost': .*'price'"),
    (
      {'data.scaling': 'counts', 'data.log': True},
      "data.log=True: data.scaling='counts'",
    ),
    (
      {'task.head': 'negative_binomial'},
      "data.scaling='window': task.head='negative_binomial' is of counts",
    ),
    ({'data.scaling': 'counts'}, r'series.csv:2: .*no count'),
  ),
)
def test_what_contradicts_is_refused(path, changes, message):
  with pytest.raises(errors.InputError, match=message):
    series.corpus(series.raw_config(path, **(series.COVARIATES | changes)))
