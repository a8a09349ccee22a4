"""Folders of checkpoints in a bucket: gs://BUCKET/FOLDER.

Orbax writes arrays there through TensorStore's own client, lists and writes
small files through etils.epath, which uses gcsfs, and asks google-cloud-storage
what kind of bucket it is. Each of the three finds its credentials itself
(Application Default Credentials) and has its own timeout, up to 15 minutes.
`reach` tries all of them before any work, within a minute.

An object store can't rename folders: Orbax marks a finished checkpoint with a
file, commit_success.txt, and removes checkpoints without it.
"""

import contextlib
import functools
import logging
import os
import pathlib
import threading
import uuid
from collections.abc import Iterator

from etils import epath

from rnn_jax import errors
from rnn_jax.system import files

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
  'unreachable': 'check the network and the spelling of the name',
  'refused': (
    'check that the bucket exists and that this machine may use it: '
    '`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS'
    '=FILE, of an account with the roles storage.objectAdmin and '
    'storage.legacyBucketReader'
  ),
}


def is_remote(folder: str | os.PathLike[str]) -> bool:
  """Returns whether a folder isn't on this machine."""
  return '://' in os.fspath(folder)


def path(folder: str | os.PathLike[str]) -> pathlib.Path | epath.Path:
  """Returns a folder as a path: absolute, or in a bucket.

  Raises:
    InputError: checkpoints can't be there, or a package is missing.
  """
  if not is_remote(folder):
    return pathlib.Path(folder).absolute()
  _check_name(os.fspath(folder))
  _prepare()
  return epath.Path(folder)


def read_bytes(file: pathlib.Path | epath.Path) -> bytes:
  """Returns the content of a small file of a run.

  Raises:
    ValueError: as files.read_bytes.
    OSError, or a client's error: it can't be read.
  """
  if is_remote(file):
    return file.read_bytes()
  return files.read_bytes(file, within=files.named(file))


def reach(folder: str | os.PathLike[str], writes: bool) -> None:
  """Checks that a bucket answers every client that will use it.

  Args:
    folder: of checkpoints; nothing is done for one on this machine.
    writes: whether to also write and remove a small file.

  Raises:
    InputError: as `path`; no answer within a minute, or a refusal.
  """
  if is_remote(folder):
    path(folder)
    _reach(os.fspath(folder), writes)


def reason(error: BaseException) -> str:
  """Returns the message of a bucket's client; '' if it's another error."""
  cause: BaseException | None = error
  while cause is not None:
    package = type(cause).__module__.partition('.')[0]
    text = str(cause)
    known = isinstance(cause, OSError) or package in PACKAGES
    if known or any(word in text for word in WORDS):
      text = ' '.join(text.partition(' [')[0].split())
      return f'{type(cause).__name__}: {text[:300]}'
    cause = cause.__cause__ or cause.__context__
  return ''


@contextlib.contextmanager
def clear_errors(folder: os.PathLike[str]) -> Iterator[None]:
  """Turns errors of a bucket's clients into InputError."""
  try:
    yield
  except Exception as error:
    if is_remote(folder) and (message := reason(error)):
      raise errors.InputError(
        f'{folder}: {message}: run the same command again when the bucket '
        'answers, it resumes from the last complete checkpoint'
      ) from error
    raise


def _check_name(folder):
  if not folder.startswith(SCHEME):
    scheme = folder.partition('://')[0]
    raise errors.InputError(
      f'train.checkpoint_dir={folder!r}: Orbax writes arrays to {SCHEME} and '
      f'to folders of this machine, not to {scheme}://: mount the bucket (for '
      's3:// with mountpoint-s3, s3fs-fuse or rclone) and give the folder '
      'where it is mounted'
    )
  bucket, _, rest = folder.removeprefix(SCHEME).partition('/')
  if not bucket or not rest.strip('/'):
    raise errors.InputError(
      f'train.checkpoint_dir={folder!r}: give {SCHEME}BUCKET/FOLDER, a folder '
      'for this run'
    )


@functools.cache
def _prepare():
  """Imports a bucket's clients, and turns off their caches and logs."""
  import fsspec

  try:
    import gcsfs  # noqa: F401
    from google.cloud import storage  # noqa: F401
  except ImportError as error:
    raise errors.InputError(
      f'train.checkpoint_dir={SCHEME}...: {error}: pip install '
      "'rnn_jax[remote]', or pip install gcsfs"
    ) from error
  # gcsfs caches listings, and doesn't notice what TensorStore writes.
  fsspec.config.conf.setdefault('gcs', {})['use_listings_cache'] = False
  for name in ('gcsfs', 'google.auth'):  # they raise what they log
    logging.getLogger(name).setLevel(logging.CRITICAL)


@functools.cache
def _reach(folder, writes):
  outcomes = []

  def ask():
    try:
      for client in (_ask_tensorstore, _ask_storage):
        client(folder)
      _ask_files(folder, writes)
      outcomes.append(None)
    except Exception as error:  # of any client
      outcomes.append(error)

  # If the thread hangs, the process can still end.
  thread = threading.Thread(target=ask, daemon=True)
  thread.start()
  thread.join(SECONDS)
  if not outcomes:
    raise errors.InputError(
      f'{folder}: no answer within {SECONDS} s: {ADVICE["unreachable"]}'
    )
  if (error := outcomes[0]) is not None:
    message = reason(error) or f'{type(error).__name__}: {error}'
    away = any(word in message for word in AWAY)
    advice = ADVICE['unreachable' if away else 'refused']
    raise errors.InputError(f'{folder}: {message}: {advice}') from error


def _ask_tensorstore(folder):
  import tensorstore

  bucket, _, rest = folder.removeprefix(SCHEME).partition('/')
  retries = {'max_retries': 2, 'initial_delay': '500ms', 'max_delay': '1s'}
  spec = {
    'driver': 'gcs',
    'bucket': bucket,
    'path': rest.rstrip('/') + '/',
    'context': {'gcs_request_retries': retries},
  }
  store = tensorstore.KvStore.open(spec).result(timeout=SECONDS)
  store.read(PROBE).result(timeout=SECONDS)


def _ask_storage(folder):
  from google.cloud import storage

  # As Orbax does at each listing.
  bucket = folder.removeprefix(SCHEME).partition('/')[0]
  storage.Client().get_bucket(bucket, timeout=REQUEST, retry=None)


def _ask_files(folder, writes):
  folder = epath.Path(folder)
  folder.exists()
  if writes:
    probe = folder / f'{PROBE}{uuid.uuid4().hex}'
    probe.write_text('')
    probe.unlink()
