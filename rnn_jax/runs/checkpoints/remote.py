"""Folders of checkpoints in a bucket: gs://BUCKET/FOLDER.

Orbax writes arrays there through TensorStore's own client, lists and writes
small files through etils.epath, which is gcsfs, and asks google-cloud-storage
what kind of bucket it is. Each of the three finds its credentials by itself
(Application Default Credentials) and has a patience of its own, up to a quarter
of an hour. `reach` tries all of them before any work, within a minute.

An object store has no folders to rename: Orbax marks a finished checkpoint
with a file, commit_success.txt, and what lacks it is cleared away.
"""

import contextlib
import functools
import logging
import os
import pathlib
import threading
import uuid

from etils import epath

from rnn_jax import errors

SCHEME = 'gs://'
SECONDS = 60  # until the bucket must have answered
REQUEST = 10  # seconds of one request
PROBE = '.probe-'
# Names of packages whose errors are a bucket's, and words of TensorStore's.
PACKAGES = 'gcsfs', 'google', 'aiohttp', 'requests', 'urllib3', 'fsspec'
WORDS = (
  'UNAVAILABLE',
  'PERMISSION_DENIED',
  'UNAUTHENTICATED',
  'DEADLINE_EXCEEDED',
  'RESOURCE_EXHAUSTED',
  'retry attempts failed',
  'storage/v1/b/',
)
AWAY = 'UNAVAILABLE', 'retry attempts failed', 'Connect', 'resolve'
ADVICE = {
  'reached': 'see that this machine reaches it, and the spelling of the name',
  'told': (
    'see that the bucket is there and that this machine may use it: '
    '`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS'
    '=FILE, of an account with the roles storage.objectAdmin and '
    'storage.legacyBucketReader'
  ),
}


def is_remote(folder: str | os.PathLike) -> bool:
  """Returns whether a folder is no path of this machine."""
  return '://' in os.fspath(folder)


def path(folder: str | os.PathLike) -> pathlib.Path | epath.Path:
  """Returns a folder as a path: absolute, or in a bucket.

  Raises:
    InputError: a place where no checkpoints can be, or a package is missing.
  """
  if not is_remote(folder):
    return pathlib.Path(folder).absolute()
  _check_name(os.fspath(folder))
  _prepare()
  return epath.Path(folder)


def reach(folder: str | os.PathLike, writes: bool) -> None:
  """Sees to it that a bucket answers, to all that will ask it.

  Args:
    folder: of checkpoints; one of this machine is left alone.
    writes: whether a small file is written and removed as well.

  Raises:
    InputError: as `path`; no answer within a minute, or a refusal.
  """
  if is_remote(folder):
    path(folder)
    _reach(os.fspath(folder), writes)


def reason(error: BaseException) -> str:
  """Says what a bucket's client complains of; '' if it's no such error."""
  while error is not None:
    package = type(error).__module__.partition('.')[0]
    text = str(error)
    known = isinstance(error, OSError) or package in PACKAGES
    if known or any(word in text for word in WORDS):
      text = ' '.join(text.partition(' [')[0].split())
      return f'{type(error).__name__}: {text[:300]}'
    error = error.__cause__ or error.__context__
  return ''


@contextlib.contextmanager
def clear_errors(folder: os.PathLike):
  """Turns what is raised by a bucket's clients into InputError."""
  try:
    yield
  except Exception as error:
    if is_remote(folder) and (told := reason(error)):
      raise errors.InputError(
        f'{folder}: {told}: give the same command again when the bucket '
        'answers, it goes on from the last complete checkpoint'
      ) from error
    raise


def _check_name(folder):
  if not folder.startswith(SCHEME):
    scheme = folder.partition('://')[0]
    raise errors.InputError(
      f'train.checkpoint_dir={folder!r}: Orbax writes arrays to {SCHEME} and '
      f'to folders of this machine, not to {scheme}://: mount the bucket (for '
      's3:// with mountpoint-s3, s3fs-fuse or rclone) and give the folder that '
      'it is mounted at'
    )
  bucket, _, rest = folder.removeprefix(SCHEME).partition('/')
  if not bucket or not rest.strip('/'):
    raise errors.InputError(
      f'train.checkpoint_dir={folder!r}: give {SCHEME}BUCKET/FOLDER, a folder '
      'for this run'
    )


@functools.cache
def _prepare():
  """Loads what a bucket needs, set so that it sees what others write."""
  import fsspec

  try:
    import gcsfs  # noqa: F401
    from google.cloud import storage  # noqa: F401
  except ImportError as error:
    raise errors.InputError(
      f'train.checkpoint_dir={SCHEME}...: {error}: pip install '
      "'rnn_jax[remote]', or pip install gcsfs"
    ) from error
  # gcsfs keeps listings, and TensorStore writes behind its back.
  fsspec.config.conf.setdefault('gcs', {})['use_listings_cache'] = False
  for name in ('gcsfs', 'google.auth'):  # what they log they raise as well
    logging.getLogger(name).setLevel(logging.CRITICAL)


@functools.cache
def _reach(folder, writes):
  found = []

  def ask():
    try:
      for client in (_ask_tensorstore, _ask_storage):
        client(folder)
      _ask_files(folder, writes)
      found.append(None)
    except Exception as error:  # of whichever client
      found.append(error)

  # A thread that hangs doesn't keep the process from its end.
  thread = threading.Thread(target=ask, daemon=True)
  thread.start()
  thread.join(SECONDS)
  if not found:
    raise errors.InputError(
      f'{folder}: no answer within {SECONDS} s: {ADVICE["reached"]}'
    )
  if found[0] is not None:
    told = reason(found[0]) or f'{type(found[0]).__name__}: {found[0]}'
    advice = 'reached' if any(word in told for word in AWAY) else 'told'
    raise errors.InputError(f'{folder}: {told}: {ADVICE[advice]}') from found[0]


def _ask_tensorstore(folder):
  import tensorstore

  bucket, _, rest = folder.removeprefix(SCHEME).partition('/')
  patience = {'max_retries': 2, 'initial_delay': '500ms', 'max_delay': '1s'}
  spec = {
    'driver': 'gcs',
    'bucket': bucket,
    'path': rest.rstrip('/') + '/',
    'context': {'gcs_request_retries': patience},
  }
  store = tensorstore.KvStore.open(spec).result(timeout=SECONDS)
  store.read(PROBE).result(timeout=SECONDS)


def _ask_storage(folder):
  from google.cloud import storage

  # Orbax does, at each listing.
  bucket = folder.removeprefix(SCHEME).partition('/')[0]
  storage.Client().get_bucket(bucket, timeout=REQUEST, retry=None)


def _ask_files(folder, writes):
  folder = epath.Path(folder)
  folder.exists()
  if writes:
    probe = folder / f'{PROBE}{uuid.uuid4().hex}'
    probe.write_text('')
    probe.unlink()
