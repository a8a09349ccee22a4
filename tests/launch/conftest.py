"""A run that several files export, convert and quantize."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import loop
from tests.support import tiny


@pytest.fixture(scope='session', name='trained')
def _trained(tmp_path_factory):
  """(the unparsed config, the folder) of a trained run; read only."""
  folder = tmp_path_factory.mktemp('trained')
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  raw.optimizer.learning_rate = 1e-2
  raw.data.splits = (70, 0, 30)  # nothing to evaluate in training
  loop.train(config_lib.parse(raw), str(folder / 'run'))
  return raw, folder / 'run'
