"""Small series of numbers, and forecasters of them."""

import jax
import numpy as np
import pandas as pd

from rnn_jax import config as config_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import resolve

SEASON, HORIZON, WINDOW = 6, 5, 8


def frame(count=3, length=60, seed=0):
  """A long table of hourly series with a season and some missing readings."""
  rng = np.random.default_rng(seed)
  times = pd.date_range('2026-01-01', periods=length, freq='h')
  tables = []
  for n in range(count):
    y = 10 + n + 3 * np.sin(np.arange(length) * 2 * np.pi / SEASON + n)
    y += rng.normal(size=length)
    y[rng.random(length) < 0.03] = np.nan
    tables.append(pd.DataFrame({'unique_id': f's{n}', 'ds': times, 'y': y}))
  return pd.concat(tables, ignore_index=True)


COVARIATES = {
  'data.known': ('price', 'promo'),
  'data.observed': ('rain',),
  'data.static': ('size', 'region'),
}


def with_covariates(table, seed=1):
  """A table of `frame` with the columns of COVARIATES."""
  rng = np.random.default_rng(seed)
  count = len(table)
  number = table.unique_id.str[1:].astype(int)
  price = rng.normal(5, 1, count) + number
  price[rng.random(count) < 0.05] = np.nan
  return table.assign(
    price=price,
    promo=rng.integers(0, 2, count),
    rain=rng.normal(size=count),
    size=10.0 * number,
    region=np.where(number % 2, 'south', 'north'),
  )


TARGETS = {'data.targets': ('y', 'z')}


def with_targets(table, seed=2):
  """A table of `frame` with another column of readings, which follows y."""
  rng = np.random.default_rng(seed)
  z = 40 - 2 * table.y.ffill().shift(2, fill_value=10.0)
  z += rng.normal(size=len(table))
  return table.assign(z=z.mask(rng.random(len(table)) < 0.05))


def future(table, count=5):
  """What is known of the `count` hours after a table of `with_covariates`."""
  rng = np.random.default_rng(7)
  after = pd.date_range(table.ds.max(), periods=count + 1, freq='h')[1:]
  names = np.repeat(table.unique_id.unique(), count)
  return pd.DataFrame(
    {
      'unique_id': names,
      'ds': np.tile(after, len(names) // count),
      'price': rng.normal(6, 1, len(names)),
      'promo': rng.integers(0, 2, len(names)),
    }
  )


def raw_config(path, **changes):
  """The raw config of a small forecaster, trained for four steps."""
  raw = config_lib.default(task='forecasting', source='series')
  raw.data.update(
    path=str(path),
    season=SEASON,
    horizon=HORIZON,
    window=WINDOW,
    length=32,
    batch_size=4,
    buckets=1,
    workers=0,
  )
  raw.task.quantiles = (0.1, 0.5, 0.9)
  raw.model.update(layers=1, width=12, mlp_width=0)
  raw.cell.update(heads=2, key_width=4, value_width=4)
  raw.train.update(steps=4, checkpoint_every=2, log_every=2)
  raw.schedule.warmup_steps = 1
  raw.evaluate.update(every=4, batch_size=4)
  raw.sample.new_tokens = 0
  config_lib.override(raw, changes)
  return raw


def corpus(raw):
  """The resolved config and the corpus of an unparsed one."""
  resolved = resolve.resolve(config_lib.parse(raw))
  return resolved.config, resolved.corpus


def bundle(path, seed=3, **changes):
  """A forecaster of random parameters, none of which is 0."""
  config, data = corpus(raw_config(path, **changes))
  like = bundle_lib.like(config, data.tokenizer)
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
    lambda x: np.float32(0.4 * rng.normal(size=x.shape)), like
  )
  return bundle_lib.Bundle(config, data.tokenizer, params)
