"""Forecasters of one panel: ours, neuralforecast's LSTM and gluonts' DeepAR.

The panel is drawn: hourly series of a level, a day, a week and a noise that
remembers, each with 40 days of readings. All read a week at once and forecast
the next two days in 9 quantiles. What is trained hasn't seen the last two days
of each series, on which MASE is measured.

Others re-read their context for each new reading. `reread` calls what their
documentation shows, and `network` their network by itself on a tensor that is
ready, the least that a re-reading can cost.
"""

import functools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.harness import measure
from benchmarks.workloads import configs
from rnn_jax.evaluation.forecasting import metrics

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SEASON, WEEK, HORIZON, LENGTH = 24, 168, 48, 960
PATHS = 100  # that DeepAR draws, its default


class Sizes(NamedTuple):
  """Of the work: series of the panel, steps, rows of a step and units."""

  series: int = 64
  steps: int = 300
  rows: int = 16
  width: int = 64


def panel(series: int) -> pd.DataFrame:
  """Returns a long table: unique_id, ds, y."""
  rng = np.random.default_rng(0)
  hours = np.arange(LENGTH)
  times = pd.date_range('2026-01-01', periods=LENGTH, freq='h')
  tables = []
  for n in range(series):
    day, week = rng.uniform(0.5, 3, 2)
    noise = np.zeros(LENGTH)
    for t in range(1, LENGTH):
      noise[t] = 0.8 * noise[t - 1] + rng.normal()
    shape = day * np.sin(2 * np.pi * hours / SEASON + rng.uniform(0, 6))
    shape += week * np.sin(2 * np.pi * hours / WEEK + rng.uniform(0, 6))
    y = rng.uniform(20, 200) * (1 + 0.1 * shape + 0.03 * noise)
    tables.append(pd.DataFrame({'unique_id': f's{n}', 'ds': times, 'y': y}))
  return pd.concat(tables, ignore_index=True)


def mase(frame: pd.DataFrame, forecasts: dict[str, np.ndarray]) -> float:
  """Returns the MASE of medians by series, of the panel's last readings."""
  values = {name: own.to_numpy() for name, own in _by_series(frame).y}
  histories = [values[name][:-HORIZON] for name in forecasts]
  y_NxL = np.stack([values[name][-HORIZON:] for name in forecasts])
  made_NxL = np.stack([*forecasts.values()])
  scale_N = metrics.absolute_scale(histories, SEASON)
  return metrics.mean(metrics.mase(y_NxL, made_NxL, scale_N), y_NxL, scale_N)


def training(repeats: int, who: str, sizes: dict[str, int]) -> measure.Values:
  """Seconds of a whole training, and the MASE that it reaches."""
  given = Sizes(**sizes)
  frame = panel(given.series)
  train, scored = TRAINED[who](frame, given)
  return measure.repeat(train, repeats, 1) | {'mase': mase(frame, scored())}


def forecasting(
  repeats: int, who: str, sizes: dict[str, int]
) -> measure.Values:
  """Seconds from one reading of one series to its 9 quantiles of 48 hours."""
  return measure.repeat(ASKED[who](Sizes(**sizes)), repeats, 3)


def _by_series(frame):
  return frame.groupby('unique_id', sort=False)


def _seen(frame):
  """The panel without the readings that are forecast."""
  return _by_series(frame).head(LENGTH - HORIZON)


# Ours.


def _our_config(folder: pathlib.Path, sizes: Sizes):
  path = folder / 'panel.csv'
  if not path.exists():
    panel(sizes.series).to_csv(path, index=False)
  return configs.parse(
    'forecasting',
    overrides={
      'data.path': str(path),
      'data.window': WEEK,
      'data.length': LENGTH,
      'data.batch_size': sizes.rows,
      'data.held_out': (0, 1),
      'model.width': sizes.width,
      'train.steps': sizes.steps,
      'train.log_every': sizes.steps,
      'train.checkpoint_every': sizes.steps,
      'evaluate.every': 0,
    },
  )


def _ours(frame, sizes):
  from rnn_jax.inference import forecast
  from rnn_jax.runs import bundle
  from rnn_jax.training import loop

  folder = pathlib.Path(tempfile.mkdtemp())
  config = _our_config(folder, sizes)
  runs: list[pathlib.Path] = []

  def train():
    runs.append(folder / f'run{len(runs)}')
    loop.train(config, runs[-1])

  def scored():
    model = forecast.Forecaster(bundle.read(runs[-1], 'latest'))
    made = model.forecasts(model.panel(_seen(frame)).series)
    return {each.name: each.point_H for each in made}

  return train, scored


def _our_stream(sizes):
  from benchmarks.workloads.serving import streams
  from rnn_jax.inference import forecast

  overrides = {'data.window': WEEK, 'model.width': sizes.width}
  model = forecast.Forecaster(streams.make(overrides))
  own = panel(1)
  stream = model.begin(model.panel(own).series[0])
  readings = iter(np.resize(own.y.to_numpy(), 100_000))

  def run():
    nonlocal stream
    stream = model.observe(stream, next(readings))
    return model.forecast(stream).quantiles_HxQ

  return run


# neuralforecast's LSTM.


def _neural(sizes: Sizes, steps: int) -> Any:
  from neuralforecast import NeuralForecast
  from neuralforecast.losses.pytorch import MQLoss
  from neuralforecast.models import LSTM

  _threads()
  model = LSTM(
    HORIZON,
    input_size=WEEK,
    encoder_n_layers=2,
    encoder_hidden_size=sizes.width,
    decoder_hidden_size=sizes.width,
    loss=MQLoss(quantiles=[*LEVELS]),
    scaler_type='robust',
    learning_rate=3e-3,
    max_steps=steps,
    batch_size=sizes.rows,
    random_seed=0,
    alias='LSTM',
    accelerator='cpu',
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
  )
  return NeuralForecast([model], freq='h')


def _neuralforecast(frame, sizes):
  seen, forecasters = _seen(frame), []

  def train():
    forecasters[:] = [_neural(sizes, sizes.steps)]
    forecasters[0].fit(seen)

  def scored():
    made = forecasters[0].predict(seen).reset_index()
    (column,) = (x for x in made.columns if x in ('LSTM-median', 'LSTM_ql0.5'))
    return {name: own.to_numpy() for name, own in _by_series(made)[column]}

  return train, scored


def _reread_by_neuralforecast(sizes):
  frame = panel(2)
  forecaster = _neural(sizes, 1)
  forecaster.fit(frame)
  one = frame[frame.unique_id == 's0']
  return functools.partial(forecaster.predict, one)


def _network_of_neuralforecast(sizes):
  import torch

  frame = panel(2)
  forecaster = _neural(sizes, 1)
  forecaster.fit(frame)
  model = forecaster.models[0].eval()
  window = {
    'insample_y': torch.randn(1, WEEK, 1),
    'futr_exog': None,
    'hist_exog': None,
    'stat_exog': None,
  }

  def run():
    with torch.inference_mode():
      return model(window)

  return run


# gluonts' DeepAR.


def _deep_ar(sizes: Sizes, steps: int) -> Any:
  from gluonts.torch import DeepAREstimator

  _threads()
  return DeepAREstimator(
    freq='h',
    prediction_length=HORIZON,
    context_length=WEEK,
    num_layers=2,
    hidden_size=sizes.width,
    lr=3e-3,
    batch_size=sizes.rows,
    num_batches_per_epoch=steps,
    num_parallel_samples=PATHS,
    trainer_kwargs={
      'max_epochs': 1,
      'accelerator': 'cpu',
      'logger': False,
      'default_root_dir': tempfile.mkdtemp(),
      'enable_progress_bar': False,
      'enable_model_summary': False,
    },
  )


def _of_gluonts(frame):
  from gluonts.dataset import pandas

  return pandas.PandasDataset.from_long_dataframe(
    frame, target='y', item_id='unique_id', timestamp='ds', freq='h'
  )


def _gluonts(frame, sizes):
  data, predictors = _of_gluonts(_seen(frame)), []

  def train():
    predictors[:] = [_deep_ar(sizes, sizes.steps).train(data)]

  def scored():
    return {x.item_id: x.quantile(0.5) for x in predictors[0].predict(data)}

  return train, scored


def _reread_by_gluonts(sizes):
  predictor = _deep_ar(sizes, 1).train(_of_gluonts(panel(2)))
  one = _of_gluonts(panel(1))

  def run():
    (made,) = predictor.predict(one)
    return [made.quantile(level) for level in LEVELS]

  return run


def _threads():
  """PyTorch has the cores of this process, and says nothing."""
  import logging
  import warnings

  import torch

  torch.set_num_threads(measure.cores())
  warnings.filterwarnings('ignore')
  for name in ('pytorch_lightning', 'lightning.pytorch', 'lightning.fabric'):
    logging.getLogger(name).setLevel(logging.ERROR)


Trained = tuple[Callable[[], Any], Callable[[], dict[str, np.ndarray]]]
TRAINED: dict[str, Callable[[pd.DataFrame, Sizes], Trained]] = {
  'ours': _ours,
  'neuralforecast': _neuralforecast,
  'gluonts': _gluonts,
}
ASKED: dict[str, Callable[[Sizes], Callable[[], Any]]] = {
  'ours': _our_stream,
  'neuralforecast': _reread_by_neuralforecast,
  'neuralforecast, network': _network_of_neuralforecast,
  'gluonts': _reread_by_gluonts,
}
