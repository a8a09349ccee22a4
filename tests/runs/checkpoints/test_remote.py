"""Checkpoints in a bucket: tests/support/bucket.py on localhost."""

import importlib.util
import pathlib
import time

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.runs import workdir
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.runs.checkpoints import checksums
from rnn_jax.runs.checkpoints import remote
from tests.support import bucket as bucket_lib
from tests.support import saved
from tests.support import waiting

# Not imported here: it reads the environment once.
pytestmark = pytest.mark.skipif(
  importlib.util.find_spec('gcsfs') is None, reason='needs rnn_jax[remote]'
)


@pytest.fixture(scope='module')
def served():
  """The clients remember where it is: one for all tests of this process."""
  with bucket_lib.serve() as bucket, pytest.MonkeyPatch.context() as patch:
    for name, value in bucket.variables.items():
      patch.setenv(name, value)
    yield bucket


FOLDER = f'gs://{bucket_lib.NAME}/demo'


@pytest.fixture(scope='module')
def pristine(served):
  saved.save_all(FOLDER, 2, {1: 0.5, 2: 0.75, 3: None})
  return dict(served.objects)


@pytest.fixture
def bucket(served):
  served.objects.clear()
  served.generations.clear()
  served.closed = served.denied = False
  remote._reach.cache_clear()
  return served


@pytest.fixture
def written(pristine, bucket):
  for name, content in pristine.items():
    bucket.put(name, content)
  return FOLDER


def test_a_bucket_keeps_what_a_disk_keeps(written, bucket):
  steps = {name.split('/')[1] for name in bucket.objects}
  assert steps == {'1', '2', '3'}  # the newest two and the best
  reader = checkpoint.Checkpoints(written)
  iterator = saved.make_iterator()
  step, state, progress = saved.restore(reader, saved.make_state(0), iterator)
  assert step == 3 and progress['evaluations'] == 3
  saved.assert_same(state, saved.make_state(3))
  assert next(iterator) == next(saved.make_iterator(3))
  like = saved.like(saved.make_state(0)['params'])
  step, fields = saved.read(reader, {'params': like}, 'best')
  assert step == 1
  saved.assert_same(fields['params'], saved.make_state(1)['params'])
  reader.close()


def test_a_damaged_object_is_named_and_skipped(written, bucket, warnings):
  name = next(n for n in sorted(bucket.objects) if '/3/state/d/' in n)
  bucket.put(name, b'x' + bucket.objects[name][1:])
  reader = checkpoint.Checkpoints(written)
  step, state, _ = saved.restore(reader)
  assert step == 2
  saved.assert_same(state, saved.make_state(2))
  reader.close()
  (line,) = warnings
  assert 'gs://runs/demo/3' in line
  assert line.endswith(f'{name.partition("/3/")[2]} changed')
  bucket.remove(name)
  damage = checksums.damage(remote.path(written) / '3')
  assert damage == f'{name.partition("/3/")[2]} is missing'


def test_an_interrupted_save_is_not_a_checkpoint(written, bucket):
  bucket.remove('demo/3/commit_success.txt')
  reader = checkpoint.Checkpoints(written)
  assert reader.steps() == [1, 2]
  reader.close()
  writer = checkpoint.Checkpoints(written, 2)  # a thread removes the rest
  waiting.until(
    lambda: (
      not any(name.startswith('demo/3/') for name in tuple(bucket.objects))
    )
  )
  state, iterator = saved.make_state(7), saved.make_iterator()
  saved.save(writer, 3, state, iterator, {'held_out_loss': None})
  writer.close()
  _, got, _ = saved.restore(
    checkpoint.Checkpoints(written), saved.make_state(0)
  )
  saved.assert_same(got, state)


def test_a_damaged_step_is_renamed_when_it_is_saved_again(written, bucket):
  name = next(n for n in sorted(bucket.objects) if '/3/state/d/' in n)
  bucket.put(name, b'')
  writer = checkpoint.Checkpoints(written, 2)
  assert saved.restore(writer)[0] == 2
  saved.save(writer, 3, saved.make_state(3))
  writer.close()
  assert saved.restore(checkpoint.Checkpoints(written))[0] == 3
  assert bucket.objects[name.replace('/3/', '/3.replaced-1/')] == b''


@pytest.mark.parametrize('state', ['closed', 'denied'])
def test_a_bucket_that_does_not_answer_is_an_error_at_once(bucket, state):
  setattr(bucket, state, True)
  begun = time.monotonic()
  with pytest.raises(errors.InputError) as caught:
    checkpoint.Checkpoints(FOLDER, 2)
  assert time.monotonic() - begun < remote.SECONDS
  assert str(caught.value).startswith(f'{FOLDER}: ')
  words = {'closed': 'check the network', 'denied': 'application-default login'}
  assert words[state] in str(caught.value)


def test_a_lost_bucket_is_not_a_damaged_checkpoint(written, bucket):
  reader = checkpoint.Checkpoints(written)
  bucket.denied = True
  with pytest.raises(errors.InputError, match='again when the bucket answers'):
    saved.restore(reader)
  bucket.denied = False
  assert saved.restore(reader)[0] == 3
  reader.close()


def test_a_refused_save_is_an_error(written, bucket):
  writer = checkpoint.Checkpoints(written, 2)
  bucket.denied = True
  with pytest.raises(errors.InputError, match='the test says 403|Forbidden'):
    saved.save(writer, 4, saved.make_state(4))
    writer.wait()
  bucket.denied = False
  assert checkpoint.Checkpoints(written).steps() == [1, 2, 3]


def test_a_work_folder_in_a_bucket_is_refused():
  remedy = '--config.train.checkpoint_dir=gs://runs/demo'
  with pytest.raises(errors.InputError, match=remedy):
    workdir.open_for_training('gs://runs/demo', {})
  with pytest.raises(errors.InputError, match=remedy):
    workdir.load_config('gs://runs/demo')


def test_a_missing_bucket_is_an_error(bucket):
  with pytest.raises(errors.InputError, match='check that the bucket exists'):
    checkpoint.Checkpoints('gs://other/demo')


@pytest.mark.parametrize(
  ('name', 'text'),
  [
    ('s3://runs/demo', 'mountpoint-s3'),
    ('az://runs/demo', 'not to az://: mount'),
    ('gs://runs', 'give gs://BUCKET/FOLDER'),
    ('gs:///demo', 'give gs://BUCKET/FOLDER'),
  ],
)
def test_unusable_places_are_refused(name, text):
  with pytest.raises(errors.InputError, match=text) as caught:
    checkpoint.Checkpoints(name)
  assert f'train.checkpoint_dir={name!r}' in str(caught.value)


def test_a_new_work_folder_gets_what_it_needs_to_resume(written, tmp_path):
  """The machine that trained is gone, and its disk."""
  config = config_lib.to_dict(config_lib.parse(config_lib.default()))
  config['train']['checkpoint_dir'] = written
  first, second = tmp_path / 'first', tmp_path / 'second'
  with pytest.raises(errors.InputError, match='no config.json of their run'):
    workdir.open_for_training(first, config)
  target = remote.path(written)
  for step in ('2', '3'):
    (target / step).rmtree()
  (target / '1').rename(target / 'x1')  # then nothing is trained yet
  workdir.open_for_training(first, config).close()
  (first / 'tokenizer.json').write_text('{"letters": "äöü"}')
  workdir.keep_copies(first, written)
  (target / 'x1').rename(target / '1')  # and now it is

  workdir.open_for_training(second, config).close()
  for name in ('config.json', 'tokenizer.json'):
    assert (second / name).read_bytes() == (first / name).read_bytes()
  config['model']['layers'] = 7
  with pytest.raises(errors.InputError, match='model.layers: 2 -> 7'):
    workdir.open_for_training(tmp_path / 'third', config)
  config['model']['layers'] = 2
  config['train']['checkpoint_dir'] = ''
  with pytest.raises(errors.InputError, match='are in gs://runs/demo: copy'):
    workdir.open_for_training(second, config)
  assert not pathlib.Path(second, 'checkpoints').exists()
