"""States by id: owners, quotas, damage, kills; in a folder and in Redis."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import types

import pytest

from rnn_jax import errors
from rnn_jax.serving import records
from rnn_jax.serving import redis_store
from rnn_jax.serving import store as store_lib
from tests.serving import redis_server
from tests.support import tiny

LIMITS = records.Limits(bytes_per_owner=1000, days=30.0)
WRITER = """
import sys
from rnn_jax.serving import store as store_lib
store = store_lib.open_store(sys.argv[1])
n = 0
while True:
  n += 1
  record = store.put('alice', bytes([n % 256]) * 200_000, 1, 'm')
  print(record.id, flush=True)
"""


@pytest.fixture(name='redis_url', scope='module')
def _redis_url(tmp_path_factory):
  with redis_server.started(tmp_path_factory.mktemp('redis')) as url:
    yield url


@pytest.fixture(name='place', params=['folder', 'redis'])
def _place(request, tmp_path):
  """(a store, a function that opens another one of the same place)."""
  url = str(tmp_path / 'states')
  if request.param == 'redis':
    url = request.getfixturevalue('redis_url')
  store = store_lib.open_store(url, LIMITS)
  if request.param == 'redis':
    store._redis.flushdb()
  yield types.SimpleNamespace(store=store, url=url, kind=request.param)
  store.close()


def test_a_state_is_whole_for_another_process(place):
  record = place.store.put('alice', b'content', tokens=5, model='digest')
  assert records.ID.fullmatch(record.id)
  assert (record.tokens, record.size, record.model) == (5, 7, 'digest')
  other = store_lib.open_store(place.url, LIMITS)
  assert other.get('alice', record.id) == (record, b'content')
  assert other.list('alice') == [record]
  other.delete('alice', record.id)
  other.close()
  with pytest.raises(records.NotFoundError):
    place.store.get('alice', record.id)
  assert place.store.list('alice') == []


def test_owners_are_apart(place):
  record = place.store.put('alice', b'content', 5, 'm')
  for call in (place.store.get, place.store.delete):
    with pytest.raises(records.NotFoundError, match=record.id):
      call('bob', record.id)
  assert place.store.list('bob') == []
  assert place.store.get('alice', record.id)[1] == b'content'


def test_an_owner_has_a_quota(place):
  first = place.store.put('alice', b'x' * 600, 1, 'm')
  with pytest.raises(records.QuotaError, match='1,000'):
    place.store.put('alice', b'x' * 401, 1, 'm')
  place.store.put('bob', b'x' * 401, 1, 'm')
  place.store.delete('alice', first.id)
  place.store.put('alice', b'x' * 1000, 1, 'm')


def test_old_states_are_removed(place, monkeypatch):
  record = place.store.put('alice', b'content', 5, 'm')
  if place.kind == 'folder':
    now = time.time()
    monkeypatch.setattr(time, 'time', lambda: now + 29 * 86400)
    place.store.get('alice', record.id)  # it is in use again
    monkeypatch.setattr(time, 'time', lambda: now + 58 * 86400)
    assert place.store.list('alice') == [record]
    monkeypatch.setattr(time, 'time', lambda: now + 60 * 86400)
  else:
    key = redis_store._key('alice', record.id)
    assert 29 * 86400 < place.store._redis.ttl(key) <= 30 * 86400
    place.store._redis.pexpire(key, 1)
    time.sleep(0.05)
  assert place.store.list('alice') == []
  with pytest.raises(records.NotFoundError):
    place.store.get('alice', record.id)


def test_damage_is_refused(place):
  record = place.store.put('alice', b'content', 5, 'm')
  for damaged in (b'conten', b'contenT', b''):
    if place.kind == 'folder':
      place.store._database.connection.execute(
        'update contents set content = ? where id = ?', (damaged, record.id)
      )
    else:
      place.store._redis.set(redis_store._key('alice', record.id), damaged)
    with pytest.raises(records.DamagedError, match=record.id):
      place.store.get('alice', record.id)


def test_a_kill_leaves_whole_states_only(tmp_path):
  process = subprocess.Popen(
    [sys.executable, '-c', WRITER, str(tmp_path)],
    cwd=tiny.ROOT,
    stdout=subprocess.PIPE,
    env=os.environ | {'JAX_PLATFORMS': 'cpu'},
  )
  names = [process.stdout.readline().decode().strip() for _ in range(20)]
  process.send_signal(signal.SIGKILL)
  names += process.communicate()[0].decode().split()
  store = store_lib.open_store(str(tmp_path))
  kept = {record.id for record in store.list('alice')}
  assert {*names} <= kept and len(kept) <= len(names) + 1
  for name in kept:
    record, content = store.get('alice', name)
    assert content == content[:1] * 200_000


def test_a_removed_state_frees_its_space(tmp_path):
  store = store_lib.open_store(str(tmp_path))
  record = store.put('alice', os.urandom(10**6), 1, 'm')
  store.delete('alice', record.id)
  store.close()
  (path,) = tmp_path.iterdir()
  assert path.stat().st_size < 10**5
  assert path.stat().st_mode & 0o777 == 0o600


def test_many_threads_share_a_store(tmp_path):
  store = store_lib.open_store(str(tmp_path))
  failures = []

  def work(owner):
    try:
      for n in range(10):
        content = f'{owner} {n}'.encode()
        record = store.put(owner, content, n, 'm')
        assert store.get(owner, record.id) == (record, content)
    except Exception as error:  # noqa: BLE001, the test shows it
      failures.append(error)

  threads = [threading.Thread(target=work, args=(f'{n}',)) for n in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not failures
  assert all(len(store.list(f'{n}')) == 10 for n in range(6))


def test_a_store_that_fails_says_so(tmp_path):
  store = store_lib.open_store(str(tmp_path))
  with sqlite3.connect(tmp_path / 'states.sqlite') as database:
    database.execute('drop table states')
  with pytest.raises(records.UnavailableError, match='no such table'):
    store.list('alice')


@pytest.mark.parametrize(
  'place, words',
  [
    ('redis://127.0.0.1:1/0', 'start the server'),
    ('ftp://x', 'give a folder'),
    ('/proc/nowhere', 'can be written'),
  ],
)
def test_a_place_that_cannot_be_used_is_refused(place, words):
  with pytest.raises(errors.InputError, match=words):
    store_lib.open_store(place)


@pytest.mark.parametrize('damage', ['rubbish', 'middle', 'folder'])
def test_a_damaged_database_is_named_at_the_start(tmp_path, damage):
  store = store_lib.open_store(str(tmp_path), LIMITS)
  for n in range(200):
    store.put(f'owner{n}', b'', tokens=1, model='m' * 99)
  store.close()
  path = tmp_path / 'states.sqlite'
  content = bytearray(path.read_bytes())
  path.unlink()
  if damage == 'folder':
    path.mkdir()
  else:
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(b'no database' * 999 if damage == 'rubbish' else content)
  words = 'unable to open' if damage == 'folder' else 'sqlite is damaged: move'
  with pytest.raises(errors.InputError, match=words) as caught:
    store_lib.open_store(str(tmp_path), LIMITS)
  assert 'store=' in str(caught.value)
  assert len(str(caught.value).splitlines()) == 1
