"""Streams in a Redis server: another server has them, whole, and only one."""

import pytest

from rnn_jax.inference import model as model_lib
from rnn_jax.serving import records
from rnn_jax.serving import store as store_lib
from rnn_jax.serving import streams as streams_lib
from tests.serving import redis_server
from tests.serving import test_streams
from tests.support import series

HISTORY = test_streams.HISTORY


@pytest.fixture(name='url')
def _url(tmp_path):
  with redis_server.started(tmp_path) as url:
    yield url


def test_another_server_continues_streams_and_the_first_writes_no_more(
  url, tmp_path
):
  frame = series.frame(3, 120)
  path = tmp_path / 'series.csv'
  frame.to_csv(path, index=False)
  model = model_lib.Model(series.bundle(path))

  def opened():
    store = store_lib.open_streams(url)
    return streams_lib.Streams(model.forecaster, 'd', store=store)

  with opened().running() as first:
    for name in ('s0', 's1', 's2'):
      test_streams.begin(model, first, frame, name).result()
    for count in (1, 90):  # a part, and a state
      name = f's{int(count > 1)}'
      own = test_streams.one(frame, name).y.to_numpy()
      first.read(('alice', name), None, own[HISTORY : HISTORY + count]).result()
    first.delete(('alice', 's2')).result()
    with opened().running() as second:
      assert second.ids('alice') == ['s0', 's1']
      for name, count in (('s0', 1), ('s1', 90)):
        stream = second.get(('alice', name))
        test_streams.check_same(model, frame, name, stream, HISTORY + count)
      with pytest.raises(records.UnavailableError, match='another server has'):
        first.read(('alice', 's0'), None, [1.0]).result()
      second.read(('alice', 's0'), None, [1.0]).result()
  with opened().running() as third:
    assert third.get(('alice', 's0')).count == HISTORY + 2
