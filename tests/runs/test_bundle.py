"""A model without a run, in memory and as a work folder."""

import copy
import dataclasses
import shutil

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import workdir
from rnn_jax.runs.checkpoints import checkpoint
from tests.support import bundles
from tests.support import tiny


@pytest.fixture(scope='module', name='bundle')
def _bundle():
  return bundles.make(tiny.raw_config('text'))


def test_a_folder_is_complete_or_absent(bundle, tmp_path, monkeypatch):
  bundle_lib.write(bundle, tmp_path / 'runs' / 'new')
  bundles.assert_same(bundle_lib.read(tmp_path / 'runs' / 'new', 0), bundle)
  assert [path.name for path in (tmp_path / 'runs').iterdir()] == ['new']
  for used in (tmp_path / 'runs' / 'new', __file__):
    with pytest.raises(errors.InputError, match='exists already'):
      bundle_lib.write(bundle, used)

  def fail(*_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(bundle_lib, '_fill', fail)
  with pytest.raises(errors.InputError, match='No space left on device'):
    bundle_lib.write(bundle, tmp_path / 'runs' / 'other')
  assert [path.name for path in (tmp_path / 'runs').iterdir()] == ['new']


def test_parameters_are_written_in_chunks_and_without_a_copy(
  bundle, tmp_path, monkeypatch
):
  def size(folder):
    state = folder / 'checkpoints' / '0' / 'state'
    return sum(path.stat().st_size for path in state.rglob('d/*'))

  lent = np.zeros(3).view(checkpoint._Lent)
  assert copy.deepcopy([lent])[0] is lent
  bundle_lib.write(bundle, tmp_path / 'whole')
  monkeypatch.setattr(checkpoint, 'CHUNK', 64)
  bundle_lib.write(bundle, tmp_path / 'parts')
  bundles.assert_same(bundle_lib.read(tmp_path / 'parts', 0), bundle)
  # Each chunk is compressed by itself.
  assert size(tmp_path / 'parts') > 1.1 * size(tmp_path / 'whole')


def test_checkpoints_elsewhere_are_read_but_not_kept_in_the_config(
  bundle, tmp_path
):
  bundle_lib.write(bundle, tmp_path / 'run')
  (tmp_path / 'run' / 'checkpoints').rename(tmp_path / 'elsewhere')
  elsewhere = str(tmp_path / 'elsewhere')
  train = dataclasses.replace(bundle.config.train, checkpoint_dir=elsewhere)
  config = dataclasses.replace(bundle.config, train=train)
  (tmp_path / 'run' / 'config.json').write_text(
    workdir.dump(config_lib.to_dict(config))
  )
  moved = bundle_lib.read(tmp_path / 'run', 'best')
  bundles.assert_same(moved, dataclasses.replace(bundle, config=config))
  bundle_lib.write(moved, tmp_path / 'copy')
  shutil.rmtree(elsewhere)
  bundles.assert_same(bundle_lib.read(tmp_path / 'copy', 'best'), bundle)


def test_parameters_of_another_model_are_refused(bundle):
  leaves = bundle_lib.flat(bundle.params)
  leaves['head.bias'] = np.zeros(4, np.float32)
  with pytest.raises(
    errors.InputError, match=r'head.bias: \(4,\), expected \('
  ):
    bundle_lib.make(bundle.config, bundle.tokenizer, bundle_lib.nested(leaves))


def test_the_config_names_the_kind_of_its_tokenizer(bundle):
  assert bundle.config.data.tokenizer == 'numbers'
  assert bundle.config.data.vocabulary == 21
  data = dataclasses.replace(bundle.config.data, tokenizer='bytes')
  config = dataclasses.replace(bundle.config, data=data)
  again = bundle_lib.make(config, bundle.tokenizer, bundle.params)
  assert again.config == bundle.config


def test_a_folder_without_a_tokenizer_is_refused(bundle, tmp_path):
  bundle_lib.write(bundle, tmp_path / 'run')
  (tmp_path / 'run' / 'tokenizer.json').unlink()
  with pytest.raises(errors.InputError, match='tokenizer.json is missing'):
    bundle_lib.read(tmp_path / 'run', 'best')
