"""Small series with labels, and models of them."""

import numpy as np
import pandas as pd

from rnn_jax import config as config_lib
from tests.support import series

TASKS = {  # the label of each
  'series_classification': 'class',
  'series_regression': 'number',
  'series_tagging': 'steps',
}
CLASSES = 'rising', 'falling'
CHANNELS = 'a', 'b'


def frame(count=24, seed=0, label='class'):
  """A long table of two channels, of 6 to 12 steps, in which one may rise.

  Args:
    count: of series.
    seed: of all numbers.
    label: 'class'; 'number', the slope; 'steps', whether a reading is high.
  """
  rng = np.random.default_rng(seed)
  tables = []
  for n in range(count):
    length = int(rng.integers(6, 13))
    slope = (1 - 2 * (n % 2)) * rng.uniform(0.5, 1.5)
    a = slope * np.arange(length) + rng.normal(size=length)
    b = rng.normal(size=length)
    labels = {
      'class': [CLASSES[n % 2]] * length,
      'number': [slope] * length,
      'steps': np.where(a > 0, 'high', 'low'),
    }[label]
    a[rng.random(length) < 0.1] = np.nan
    tables.append(
      pd.DataFrame(
        {
          'unique_id': f's{n:02}',
          'ds': np.arange(length),
          'a': a,
          'b': b,
          'label': labels,
        }
      )
    )
  return pd.concat(tables, ignore_index=True)


def raw_config(path, task='series_classification', **changes):
  """The raw config of a small model, trained for four steps."""
  raw = config_lib.default(task=task, source='labelled_series')
  raw.data.update(
    path=str(path),
    length=32,
    batch_size=8,
    buckets=1,
    workers=0,
    splits=(60, 20, 20),
  )
  raw.model.update(layers=1, width=12, mlp_width=0)
  raw.cell.update(heads=2, key_width=4, value_width=4)
  raw.train.update(steps=4, checkpoint_every=2, log_every=2)
  raw.schedule.warmup_steps = 1
  raw.evaluate.update(every=4, batch_size=8)
  raw.sample.new_tokens = 0
  config_lib.override(raw, changes)
  return raw


corpus = series.corpus
