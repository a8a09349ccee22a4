"""The model of the run that another one begins with."""

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import origin
from tests.support import bundles


def write(raw, folder):
  bundle_lib.write(bundles.make(raw, tokenizer_lib.Bytes()), folder)
  return origin.Init(str(folder), 'latest')


def taken(init, workdir=None, given=None):
  """A default config after `take_model`, and after flags."""
  raw = config_lib.default()
  origin.take_model(raw, init, workdir, raw.train.checkpoint_dir)
  config_lib.override(raw, given or {})
  return config_lib.parse(raw)


def own_model(pattern):
  raw = config_lib.default(pattern)
  raw.model.update(layers=4, width=8, mlp_width=12)
  raw.data.tokenizer = 'bytes'
  return raw


@pytest.mark.parametrize('pattern', ('gru', ('gru', 'lstm')))
def test_model_and_tokenizer_are_those_of_the_run(pattern, tmp_path):
  raw = own_model(pattern)
  config = taken(write(raw, tmp_path / 'other'))
  wanted = config_lib.parse(raw)
  assert (config.model, config.cell) == (wanted.model, wanted.cell)
  assert config.data.tokenizer == 'bytes'
  assert config.train == config_lib.parse(config_lib.default()).train


@pytest.mark.parametrize(
  ('window', 'length', 'expected'),
  ((0, 64, 64), (32, 64, 32), (0, 700, 700), (128, 256, 256)),
)
def test_a_window_of_whole_rows_is_one_of_the_new_run_s(
  window, length, expected, tmp_path
):
  raw = own_model('attention')
  raw.data.length = 128
  raw.cell.window = window
  init = write(raw, tmp_path / 'other')
  config = taken(init, given={'data.length': length})
  assert config.cell.window == expected


def test_cells_of_a_pattern_have_windows_of_their_own(tmp_path):
  raw = own_model(('attention', 'latent_attention'))
  raw.cell.latent_attention.window = 8
  init = write(raw, tmp_path / 'other')
  given = {'data.length': 16, 'cell.attention.head_width': 4}
  cell = taken(init, given=given).cell
  assert (cell.attention.window, cell.latent_attention.window) == (16, 8)
  assert cell.attention.head_width == 4


def test_flags_count_more(tmp_path):
  init = write(own_model('gru'), tmp_path / 'other')
  config = taken(init, given={'model.dropout': 0.25, 'train.steps': 7})
  assert (config.model.cell, config.model.dropout) == ('gru', 0.25)
  assert config.train.steps == 7


def test_a_run_that_has_begun_has_its_own(tmp_path):
  init = write(own_model('gru'), tmp_path / 'other')
  write(own_model('lstm'), tmp_path / 'run')
  origin.write(init, tmp_path / 'run', 0, '', ((), ()))
  assert taken(init, tmp_path / 'run').model.cell == 'lstm'


def test_a_folder_without_a_run_is_refused(tmp_path):
  with pytest.raises(errors.InputError, match='no such folder'):
    taken(origin.Init(str(tmp_path / 'none')))
