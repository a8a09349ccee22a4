"""What a config leaves open is filled in once, and kept with what was given."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import resolve
from rnn_jax.config import values
from rnn_jax.training import loop
from tests.config import test_config
from tests.support import tiny

parse = config_lib.parse
changed = test_config.changed


def rows(tokens):
  """A resolver as that of data.memory_gib, which chooses `tokens`."""

  def fill(config, known):
    assert known == 'known'
    return values.replaced(config, {'data.tokens_per_batch': tokens})

  needs, fills = ('data.memory_gib',), ('data.tokens_per_batch',)
  return (resolve.Resolver(needs, fills, fill),)


def test_a_filled_key_keeps_what_was_given():
  config = parse(changed(data__memory_gib=1.0))
  resolved = resolve.run(config, rows(512), 'known')
  assert resolved.data.tokens_per_batch == 512
  assert resolved.given == {'data.tokens_per_batch': 0} | config.given
  assert resolve.as_given(resolved) == resolve.as_given(config)
  line = 'resolved data.tokens_per_batch=512 (from data.memory_gib=1.0)'
  assert resolve.describe(resolved, rows(0)) == line
  assert resolve.describe(config, rows(0)) == ''
  stored = json.loads(json.dumps(config_lib.to_dict(resolved)))
  assert parse(stored) == resolved  # its rules are those of what was given
  with pytest.raises(errors.InputError, match='data.memory_gib=1.0'):
    parse(stored | {'given': {}})


def test_a_run_that_resumes_has_the_values_that_it_began_with():
  config = parse(changed(data__memory_gib=1.0))
  before = resolve.run(config, rows(512), 'known')
  again = resolve.run(config, rows(256), 'known', before)
  assert again == before
  for other in (
    parse(changed(data__memory_gib=2.0)),
    parse(changed(data__tokens_per_batch=1024)),
  ):
    new = resolve.run(other, rows(256), 'known', before)
    assert new.data.tokens_per_batch == 256


@pytest.mark.parametrize(
  'given',
  (
    ['train.steps'],
    {'train': {}},
    {'steps': 1},
    {'train.other': 1},
    {'other.steps': 1},
    {'train.steps': 'many'},
    {'data.source': 'a_package.module'},
    {'optimizer.name': 'a_package.module'},
  ),
)
def test_what_a_stored_config_says_was_given_is_checked(given):
  stored = config_lib.to_dict(parse(changed()))
  with pytest.raises(errors.InputError):
    parse(stored | {'given': given})


def test_what_is_refused_leaves_no_folder(tmp_path):
  raw = tiny.raw_config(str(tmp_path / 'none' / '*.txt'))
  with pytest.raises(errors.InputError, match='data.path='):
    loop.train(parse(raw), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
