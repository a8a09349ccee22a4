"""Each task of the source says what its answer follows from."""

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import mad


def texts(task, count=40, held_out=True, **options):
  chosen = mad.Options(task=task, **options)
  for n in range(count):
    text = mad.make((0, 1, n), chosen, held_out)
    assert len(text.inputs_L) == len(text.labels_L) == len(text.asked_L)
    assert text.inputs_L.min() >= 0
    assert text.inputs_L.max() < chosen.vocabulary
    yield text


def test_recall_asks_for_values_of_keys_that_came_before():
  for text in texts('recall', length=64):
    keys, values = text.inputs_L[::2], np.append(text.inputs_L, 0)[1::2]
    values[-1] = text.labels_L[-1]
    assert len(keys) == 32 and keys.max() < 8 <= values.min()
    given = {}
    for n, (key, value) in enumerate(zip(keys, values, strict=True)):
      assert text.asked_L[2 * n] == (key in given)
      if key in given:
        assert text.labels_L[2 * n] == given[key] == value
      given[key] = value
    assert not text.asked_L[1::2].any() and text.asked_L[-1]


def test_noise_is_never_asked_for_and_has_symbols_of_its_own():
  shares = []
  options = {'vocabulary': 32, 'length': 64, 'noise': 0.4}
  for text in texts('noisy_recall', 60, **options):
    pairs = np.append(text.inputs_L, text.labels_L[-1]).reshape(-1, 2)
    is_noise = pairs >= 16
    assert (is_noise[:, 0] == is_noise[:, 1]).all()
    assert not text.asked_L[::2][is_noise[:, 0]].any()
    assert (pairs[~is_noise[:, 0], 0] < 8).all() and text.asked_L[-1]
    shares.append(is_noise[:, 0].mean())
  assert 0.33 < np.mean(shares) < 0.45


def test_keys_and_values_of_several_symbols_are_recalled_whole():
  lengths = set()
  for text in texts('fuzzy_recall', 60, vocabulary=16):
    symbols = np.append(text.inputs_L, text.labels_L[-1]).tolist()
    asked = [False, *text.asked_L.tolist()]
    assert len(symbols) == 129
    while symbols[0] == 15:  # blanks
      del symbols[0], asked[0]
    given, n = {}, 0
    while n < len(symbols):
      key = tuple(symbols[n : n + 3])  # of held-out texts, of three
      stop = n + 3
      while stop < len(symbols) and symbols[stop] >= 7:
        stop += 1
      value = tuple(symbols[n + 3 : stop])
      assert len({*key}) == 3 and max(key) < 7 and 1 <= len(value) <= 3
      assert not any(asked[n : n + 3])
      assert asked[n + 3 : stop] == [key in given] * len(value)
      assert given.setdefault(key, value) == value
      lengths.add(len(value))
      n = stop
    assert asked[-1]
  assert lengths == {1, 2, 3}


def test_training_texts_ask_for_every_next_symbol():
  for task in ('recall', 'noisy_recall', 'fuzzy_recall'):
    for text in texts(task, 5, held_out=False, vocabulary=32):
      assert text.asked_L.all()
      assert (text.labels_L[:-1] == text.inputs_L[1:]).all()


def test_copying_asks_for_the_symbols_in_their_order():
  places = np.zeros(64)
  for text in texts('copying', 200, length=64, copied=8):
    blank, mark = 14, 15
    assert text.inputs_L[-9] == mark and (text.inputs_L[-8:] == blank).all()
    before = text.inputs_L[:-9]
    given = before[before != blank]
    assert text.asked_L.tolist() == [False] * 56 + [True] * 8
    assert (text.labels_L[-8:] == given).all() and len(given) == 8
    places[:55] += before != blank
  assert (places[5:50] > 0).all()


def test_compression_asks_for_the_text_itself():
  drawn = [text.inputs_L for text in texts('compression', length=32)]
  assert all(each[-1] == 15 and each[:-1].max() < 15 for each in drawn)
  for text in texts('compression', 3, length=32):
    assert text.asked_L.all() and (text.inputs_L == text.labels_L).all()


def test_the_values_of_memorization_are_the_same_in_all_texts():
  known = {}
  options = {'vocabulary': 64, 'length': 32}
  for text in texts('memorization', 60, **options):
    assert (text.inputs_L[1::2] == 63).all()
    assert text.asked_L.tolist() == [False, True] * 16
    for key, value in zip(text.inputs_L[::2], text.labels_L[1::2], strict=True):
      assert key < 31 <= value < 63
      assert known.setdefault(key, value) == value
  assert len(known) == len({*known.values()}) == 31
  other = next(texts('memorization', 1, seed=1, **options))
  assert any(
    known[key] != value
    for key, value in zip(
      other.inputs_L[::2], other.labels_L[1::2], strict=True
    )
  )


def raw_config(task='recall', **options):
  kind = 'reconstruction' if task == 'compression' else 'tagging'
  raw = config_lib.default(task=kind, source='mad')
  raw.data.tokenizer = 'characters'
  raw.data.mad.update(task=task, **options)
  return raw


def test_splits_differ_and_are_the_same_each_time():
  raw = raw_config(examples=50, held_out=20, length=32)
  data = config_lib.parse(raw).data
  splits, again = mad.load(data), mad.load(data)
  sizes = {name: len(split) for name, split in splits.items()}
  assert sizes == {'train': 50, 'validation': 20, 'test': 0}
  train, held_out = (
    {splits[name].read(n) for n in range(len(splits[name]))}
    for name in ('train', 'validation')
  )
  assert len(train | held_out) == 70
  assert train == {again['train'].read(n) for n in range(50)}


@pytest.mark.parametrize(
  'task, options, message',
  [
    ('copying', {'length': 32}, 'data.mad.length=32: .* 33 symbols'),
    ('fuzzy_recall', {'length': 16}, 'data.mad.length=16: .* 18 symbols'),
    ('fuzzy_recall', {'vocabulary': 6}, 'data.mad.vocabulary=6: .* 7 symbols'),
    ('noisy_recall', {}, 'data.mad.vocabulary=16: .* 18 symbols'),
  ],
)
def test_what_has_no_room_is_refused(task, options, message):
  with pytest.raises(errors.InputError, match=message):
    config_lib.parse(raw_config(task, **options))


def test_a_task_of_the_wrong_kind_is_refused():
  raw = raw_config('compression')
  raw.task.name = 'tagging'
  with pytest.raises(errors.InputError, match="task.name='tagging': .*recons"):
    config_lib.parse(raw)
