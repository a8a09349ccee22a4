"""Readings of streams to their forecasts, through the store, without HTTP.

The model is that of configs/forecasting.py on its sample, with drawn weights. A
reading is on the disk before its forecast is there.
"""

import pathlib
import tempfile

import jax
import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import configs
from benchmarks.workloads.serving import model as model_lib
from rnn_jax import config as config_lib
from rnn_jax.data.series import panel
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.serving import store as store_lib
from rnn_jax.serving import streams as streams_lib
from rnn_jax.training import resolve


def read(
  repeats: int,
  streams: int,
  history: int = 200,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """Seconds of a round: in one request each stream reads once and is forecast.

  Args:
    repeats: rounds.
    streams: that are served.
    history: readings before.
    overrides: keys of the model's config.
  """
  forecaster = forecast_lib.Forecaster(make(overrides))
  rng = np.random.default_rng(0)
  keys = [('anyone', f's{n}') for n in range(streams)]
  with tempfile.TemporaryDirectory() as folder:
    store = store_lib.open_streams(str(pathlib.Path(folder) / 'states'))
    served = streams_lib.Streams(
      forecaster, 'drawn', streams_lib.Options(streams=streams), store
    )

    def round_of_all():
      values = rng.normal(100, 10, size=streams).tolist()
      answers = served.read_all(keys, None, values).result()
      forecaster.forecast_all([answer.stream for answer in answers])

    with served.running():
      begun = [
        served.put(
          key, panel.Series(key[1], 0, rng.normal(100, 10, size=(history, 1)))
        )
        for key in keys
      ]
      for done in begun:
        done.result()
      values = measure.repeat(round_of_all, repeats, 2)
  return values | {
    'streams': streams,
    'stream_bytes': served.state_bytes,
    'readings_per_second': streams / values['median'],
  }


def make(overrides: model_lib.Overrides = None) -> bundle_lib.Bundle:
  """The forecaster, with keys of its config changed."""
  raw = configs.load('forecasting', '', overrides)
  resolved = resolve.resolve(config_lib.parse(raw))
  config, tokenizer = resolved.config, resolved.corpus.tokenizer
  task = bundle_lib.make_task(config, tokenizer)
  params = jax.jit(lambda: task.init_parameters(jax.random.key(0)))()
  return bundle_lib.make(config, tokenizer, jax.device_get(params))
