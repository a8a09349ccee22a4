"""Held-out horizons are forecast as each series is by itself, bit for bit."""

import numpy as np

from rnn_jax.evaluation import forecasts
from rnn_jax.inference import model as model_lib
from rnn_jax.training import evaluate
from tests.support import series

HELD_OUT = {'data.held_out': (1, 3)}


def test_series_read_together_have_the_forecasts_of_each(tmp_path, monkeypatch):
  """Of several horizons, and series of several lengths."""
  frame = series.frame(19, 60)
  place = frame.groupby('unique_id').cumcount()
  number = frame.unique_id.str[1:].astype(int)
  frame = frame[place < 60 - number % 7]
  path = tmp_path / 'series.csv'
  frame.to_csv(path, index=False)
  bundle = series.bundle(path, **HELD_OUT)
  _, corpus = series.corpus(series.raw_config(path, **HELD_OUT))
  run = evaluate.Run(bundle.config, corpus, None, bundle.params, 0)
  monkeypatch.setattr(forecasts, 'TOGETHER', 17)

  rows = forecasts.predict(run, 'test', 0)
  assert rows[:6] == forecasts.predict(run, 'test', 2)
  model = model_lib.Model(bundle)
  names = frame.unique_id.unique()
  own = {name: frame[frame.unique_id == name] for name in names}
  assert [row['name'] for row in rows] == np.repeat(names, 3).tolist()
  for n, row in enumerate(rows):
    table = own[row['name']]
    seen = row['origin']
    assert seen == len(table) - 5 * (3 - n % 3)
    wanted = model.forecaster.forecast(model.begin(table[:seen]))
    assert row['point'] == wanted.point_H.tolist()
    quantiles = np.array([*row['quantiles'].values()]).T
    assert np.array_equal(quantiles, wanted.quantiles_HxQ)
    readings = np.array(row['readings'], float)
    np.testing.assert_array_equal(readings, table.y[seen : seen + 5])
