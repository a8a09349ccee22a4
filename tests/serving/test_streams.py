"""Streams: the bits of a series read from its start, whatever is served."""

import threading

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.inference import model as model_lib
from rnn_jax.serving import records
from rnn_jax.serving import requests
from rnn_jax.serving import stream_bytes
from rnn_jax.serving import stream_store
from rnn_jax.serving import stream_table
from rnn_jax.serving import stream_times
from rnn_jax.serving import streams as streams_lib
from tests.support import series

OPTIONS = streams_lib.Options(streams=9, queue=50, readings=400)
HISTORY = 12  # readings that begin a stream


@pytest.fixture(scope='module', name='frame')
def _frame():
  return series.frame(6, 200)


@pytest.fixture(scope='module', name='model')
def _model(tmp_path_factory, frame):
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  frame.to_csv(path, index=False)
  return model_lib.Model(series.bundle(path))


@pytest.fixture(name='opened')
def _opened(model, tmp_path):
  """Returns a function that serves the streams of a folder."""

  def opened(digest='d', options=OPTIONS):
    store = stream_store.StreamStore(tmp_path)
    return streams_lib.Streams(model.forecaster, digest, options, store)

  return opened


def one(frame, name, length=None):
  own = frame[frame.unique_id == name]
  return own if length is None else own.iloc[:length]


def begin(model, served, frame, name, length=HISTORY):
  """Begins a stream with the first readings of a series."""
  (own,) = model.forecaster.panel(one(frame, name, length)).series
  return served.put(('alice', name), own)


def check_same(model, frame, name, stream, length):
  """Checks that a stream is the series read from its start, bit for bit."""
  wanted = model.begin(one(frame, name, length))
  assert stream.count == wanted.count == length
  assert stream.numbers_OxH.tobytes() == wanted.numbers_OxH.tobytes()
  if stream.carry is not None:
    for x, y in zip(
      jax.tree.leaves(stream.carry),
      jax.tree.leaves(wanted.carry),
      strict=True,
    ):
      assert x.tobytes() == y.tobytes()


def test_streams_are_their_series_at_any_time(model, opened, frame):
  """Clients that read in bursts; then another process, and again."""
  names = [*frame.unique_id.unique()]
  lengths = dict.fromkeys(names, HISTORY)
  rng = np.random.default_rng(0)
  for _ in range(3):
    with opened().running() as served:
      if lengths[names[0]] == HISTORY:
        made = [begin(model, served, frame, name) for name in names]
        for name, done in zip(names, made, strict=True):
          check_same(model, frame, name, done.result().stream, HISTORY)
      assert served.ids('alice') == names and served.ids('bob') == []

      def client(name):
        for _ in range(4):
          begin, count = lengths[name], int(rng.integers(1, 12))
          values = one(frame, name).y.to_numpy()[begin : begin + count]
          pending = [
            served.read(('alice', name), None, [value]) for value in values
          ]
          for n, done in enumerate(pending, 1):
            answer = done.result()
            assert answer.added == 1
            check_same(model, frame, name, answer.stream, begin + n)
          lengths[name] += count

      threads = [threading.Thread(target=client, args=(x,)) for x in names]
      for thread in threads:
        thread.start()
      for thread in threads:
        thread.join()
      stats = served.stats()
      assert stats.streams == 6 and stats.queued == 0
    with opened().running() as served:
      for name in names:
        stream = served.get(('alice', name))
        check_same(model, frame, name, stream, lengths[name])


def test_many_streams_read_in_one_request(model, opened, frame):
  names = [f's{n}' for n in range(5)]
  keys = [('alice', name) for name in names]
  values = {name: one(frame, name).y.to_numpy() for name in names}
  times = one(frame, 's0').ds
  with opened().running() as served:
    for name in names:
      begin(model, served, frame, name).result()
    for n in range(HISTORY, HISTORY + 3):
      given = [values[name][n] for name in names]
      own = None if n == HISTORY else [times.iloc[n].isoformat()] * 5
      answers = served.read_all(keys, own, given).result()
      for name, answer in zip(names, answers, strict=True):
        assert answer.added == 1
        check_same(model, frame, name, answer.stream, n + 1)
    # Each has its own answer, whatever becomes of the others.
    stop = HISTORY + 3
    asked = [*keys, ('alice', 'nobody'), keys[0]]
    given = [values[name][stop] for name in names]
    given[1], given[2] = np.inf, values['s2'][stop - 1]
    own = [times.iloc[stop].isoformat()] * 7
    own[2], own[3] = times.iloc[stop - 1].isoformat(), 'soon'
    again = [1.0, given[0]]
    answers = served.read_all(asked, own, [*given, *again]).result()
    assert answers[0].added == answers[4].added == 1
    assert 'finite' in str(answers[1]) and 'soon' in str(answers[3])
    assert answers[2].added == 0
    assert isinstance(answers[5], stream_table.UnknownStreamError)
    assert answers[6].added == 0  # the same reading of the same stream
    for n, name in enumerate(names):
      stream = served.get(('alice', name))
      check_same(model, frame, name, stream, stop + (n in (0, 4)))
    assert served.stats().queued == 0
    assert served.read_all([], None, []).result() == []
    with pytest.raises(requests.QueueFullError, match='50 may'):
      served.read_all([keys[0]] * 51, None, [1.0] * 51)


def test_what_the_model_fails_to_read_may_be_sent_again(
  model, opened, frame, monkeypatch
):
  """It is in the store by then, once."""
  values = one(frame, 's0').y.to_numpy()[HISTORY:]
  key = 'alice', 's0'
  with opened().running() as served:
    begin(model, served, frame, 's0').result()

    def fail(*_):
      raise RuntimeError('out of memory')

    with monkeypatch.context() as patch:
      patch.setattr(model.forecaster, '_unscaled', fail)
      for given in (values[:1] + 1, values[:2]):
        with pytest.raises(RuntimeError, match='memory'):
          served.read(key, None, given).result()
    check_same(model, frame, 's0', served.get(key), HISTORY)
    assert served.read(key, None, values[:1]).result().added == 1
  with opened().running() as served:
    check_same(model, frame, 's0', served.get(key), HISTORY + 1)


def test_a_tick_reads_of_each_stream_one_job(model, opened, frame):
  with opened().running() as served:
    for name in ('s0', 's1'):
      begin(model, served, frame, name, 150 if name == 's1' else 20).result()
  still = opened()
  still._table.restore()
  values = one(frame, 's0').y.to_numpy()
  first, second = (
    still.read(('alice', 's0'), None, [values[n]]) for n in (20, 21)
  )
  other = still.read(('alice', 's1'), None, one(frame, 's1').y.to_numpy()[150:])
  assert still.step() and first.done() and other.done()
  assert not second.done() and still.stats().queued == 1
  assert still.step() and second.done() and not still.step()
  check_same(model, frame, 's0', second.result().stream, 22)
  check_same(model, frame, 's1', other.result().stream, 200)
  still.close(0.0)


def test_a_state_is_written_when_the_journal_is_full(model, opened, frame):
  with opened().running() as served:
    begin(model, served, frame, 's0').result()
    count = stream_store.JOURNAL + 30
    values = one(frame, 's0').y.to_numpy()[HISTORY : HISTORY + count]
    for value in values:
      served.read(('alice', 's0'), None, [value]).result()
    with served._table._store._database.transaction() as database:
      (state,) = database.execute('select state from streams').fetchone()
      (journal,) = database.execute('select count(*) from parts').fetchone()
    like = stream_bytes.like(model.forecaster)
    kept = stream_bytes.load(state, like).count
    assert kept == HISTORY + stream_store.JOURNAL + 1
    assert kept + journal == HISTORY + count
    many = one(frame, 's0').y.to_numpy()[HISTORY + count :]
    done = served.read(('alice', 's0'), None, many).result()
    assert done.added == len(many)
    check_same(model, frame, 's0', done.stream, 200)
  with opened().running() as served:
    check_same(model, frame, 's0', served.get(('alice', 's0')), 200)


def test_a_repeated_reading_is_not_read_twice(model, opened, frame):
  own = one(frame, 's1')
  times = [time.isoformat() for time in own.ds]
  values = own.y.to_numpy()
  key = 'alice', 's1'
  with opened().running() as served:
    begin(model, served, frame, 's1').result()

    def read(*places, shift=0.0):
      return served.read(
        key, [times[n] for n in places], values[[*places]] + shift
      ).result()

    assert read(12, 13).added == 2
    again = read(13)
    assert again.added == 0
    check_same(model, frame, 's1', again.stream, 14)
    assert read(11, 12, 13, 14).added == 1  # the tail of a lost answer
    check_same(model, frame, 's1', read(14).stream, 15)
    with pytest.raises(stream_times.ConflictError, match='another reading'):
      read(14, shift=1.0)
    with pytest.raises(errors.InputError, match='out of order'):
      read(2)
    gap = read(17)  # two are missing
    assert gap.added == 3 and gap.stream.count == 18
    missing = own.iloc[:18].copy()
    missing.iloc[15:17, missing.columns.get_loc('y')] = np.nan
    wanted = model.begin(missing)
    assert gap.stream.numbers_OxH.tobytes() == wanted.numbers_OxH.tobytes()
    with pytest.raises(stream_times.ConflictError):
      read(15)  # it was missing, and is now known


@pytest.mark.parametrize(
  ('times', 'readings', 'message'),
  (
    (['2026-01-01T12:30'], [1.0], 'a reading every h from 2026-01-01 00:00'),
    (['soon'], [1.0], "time='soon': give one from 1678"),
    ([12], [1.0], 'time=12: give one from 1678'),
    (['2026-01-01T13:00', '2026-01-01T12:00'], [1.0, 2.0], 'in order'),
    (['2025-01-01T13:00'], [1.0], 'the series begins at 2026-01-01 00:00'),
    (['2026-01-01T13:00'], [1.0, 2.0], 'there are 2 readings'),
    (['2027-01-01T13:00'], [1.0], '8,762 with the missing ones.*at most 400'),
    ([], [1.0], 'there are 1 readings'),
    (None, [], 'give one or more'),
    (None, [float('inf')], 'a finite number'),
    (None, [1e30], "times the series' scale"),
  ),
)
def test_what_a_stream_cannot_read_is_refused(
  model, opened, frame, times, readings, message
):
  with opened().running() as served:
    begin(model, served, frame, 's2').result()
    with pytest.raises(errors.InputError, match=message):
      served.read(('alice', 's2'), times, readings).result()
    check_same(model, frame, 's2', served.get(('alice', 's2')), HISTORY)


def test_offsets_are_converted(model, frame):
  history = stream_times.history(
    model.forecaster,
    'x',
    ['2026-01-01T01:00+01:00', '2026-01-01T00:00-01:00', '2026-01-01T03:00Z'],
    [1.0, 2.0, float('nan')],
    10,
  )
  assert history.start == frame.ds[0].value
  np.testing.assert_array_equal(
    history.values_NxT[:, 0], [1, 2, np.nan, np.nan]
  )
  with pytest.raises(errors.InputError, match='times is missing'):
    stream_times.history(model.forecaster, 'x', None, [1.0], 10)


def test_a_reading_without_a_logarithm_is_refused(tmp_path, frame):
  path = tmp_path / 'series.csv'
  frame.to_csv(path, index=False)
  bundle = series.bundle(path, **{'data.log': True})
  forecaster = model_lib.Model(bundle).forecaster
  times = ['2026-01-01T00:00', '2026-01-01T01:00']
  for name in ('s0', 'new'):  # known to the run, and not
    with pytest.raises(errors.InputError, match='data.log'):
      stream_times.history(forecaster, name, times, [3.0, -1.0], 10)


def test_limits_and_unknown_streams(model, opened, frame):
  options = streams_lib.Options(streams=2, queue=3)
  with opened(options=options).running() as served:
    for name in ('s0', 's1'):
      begin(model, served, frame, name).result()
    with pytest.raises(records.QuotaError, match='2 streams'):
      begin(model, served, frame, 's2').result()
    begin(model, served, frame, 's1', 20).result()  # in place of the old one
    check_same(model, frame, 's1', served.get(('alice', 's1')), 20)
    for key in (('alice', 's2'), ('bob', 's0')):
      with pytest.raises(stream_table.UnknownStreamError, match='no such'):
        served.read(key, None, [1.0]).result()
      with pytest.raises(stream_table.UnknownStreamError):
        served.get(key)
      with pytest.raises(stream_table.UnknownStreamError):
        served.delete(key).result()
    served.delete(('alice', 's0')).result()
    begin(model, served, frame, 's2').result()
    assert served.ids('alice') == ['s1', 's2']
  with pytest.raises(requests.ClosedError):
    served.read(('alice', 's1'), None, [1.0])
  with opened(options=options).running() as served:
    assert served.ids('alice') == ['s1', 's2']
  still = opened(options=options)
  with pytest.raises(errors.InputError, match='another server'):
    opened()
  for _ in range(3):
    still.read(('alice', 's1'), None, [1.0])
  with pytest.raises(requests.QueueFullError):
    still.read(('alice', 's1'), None, [1.0])
  still.close(0.0)


def test_other_parameters_and_damage_are_named(model, opened, frame):
  with opened().running() as served:
    for name in ('s0', 's1'):
      begin(model, served, frame, name).result()
    with served._table._store._database.transaction() as database:
      database.execute("update streams set state = x'00' where id = 's1'")
  with opened('other').running() as served:
    assert served.ids('alice') == ['s0', 's1']
    with pytest.raises(stream_table.OutdatedStreamError, match='parameters'):
      served.read(('alice', 's0'), None, [1.0]).result()
  with opened().running() as served:
    check_same(model, frame, 's0', served.get(('alice', 's0')), HISTORY)
    with pytest.raises(stream_table.OutdatedStreamError, match='damaged'):
      served.get(('alice', 's1'))
    begin(model, served, frame, 's1').result()
    check_same(model, frame, 's1', served.get(('alice', 's1')), HISTORY)


def test_what_the_store_refuses_was_not_read(model, opened, frame, monkeypatch):
  with opened().running() as served:
    begin(model, served, frame, 's0').result()

    def write(*args):
      raise records.UnavailableError('the disk is full')

    with monkeypatch.context() as patch:
      patch.setattr(served._table._store, 'write', write)
      with pytest.raises(records.UnavailableError, match='full'):
        served.read(('alice', 's0'), None, [1.0]).result()
      with pytest.raises(records.UnavailableError):
        served.delete(('alice', 's0')).result()
    check_same(model, frame, 's0', served.get(('alice', 's0')), HISTORY)
  # A stream too many, in the tick that fails, has its own answer.
  still = opened(options=streams_lib.Options(streams=1))
  still._table.restore()
  with monkeypatch.context() as patch:
    patch.setattr(still._table._store, 'write', write)
    asked = begin(model, still, frame, 's1')
    failed = still.read(('alice', 's0'), None, [1.0])
    assert still.step() and not still.step()
  assert isinstance(asked.exception(), records.QuotaError)
  assert isinstance(failed.exception(), records.UnavailableError)
  still.close(0.0)
  with opened().running() as served:
    value = one(frame, 's0').y.iloc[HISTORY]
    done = served.read(('alice', 's0'), None, [value]).result()
    check_same(model, frame, 's0', done.stream, HISTORY + 1)
