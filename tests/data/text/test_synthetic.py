"""Texts depend only on (seed, n); splits have each of them once."""

import dataclasses
import pickle

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.sources import copying
from rnn_jax.data.sources import recall
from rnn_jax.data.text import synthetic

SMALL = synthetic.Options(examples=60)


def data(**options):
  small = dataclasses.replace(SMALL, **options)
  return config.section(
    'data', source='recall', splits=(80, 10, 10), synthetic=small
  )


def texts(splits):
  return {
    name: [part.read(n).decode() for n in range(len(part))]
    for name, part in splits.items()
  }


def test_a_text_depends_only_on_its_seed_and_number():
  first, again = (synthetic.Texts(recall.make, SMALL) for _ in range(2))
  assert again.read(7, 0, 99) == first.read(7, 0, 99) != first.read(8, 0, 99)
  assert again.read(7, 3, 5) == first.read(7, 0, 99)[3:5]
  other = synthetic.Texts(recall.make, dataclasses.replace(SMALL, seed=1))
  assert other.read(7, 0, 99) != first.read(7, 0, 99)
  fewer = synthetic.Texts(recall.make, dataclasses.replace(SMALL, examples=8))
  assert fewer.read(7, 0, 99) == first.read(7, 0, 99)
  assert pickle.loads(pickle.dumps(first)).read(7, 0, 99) == first.read(
    7, 0, 99
  )


def test_each_text_is_in_one_split():
  splits = recall.load(data())
  assert {name: len(part) for name, part in splits.items()} == {
    'train': 48,
    'validation': 6,
    'test': 6,
  }
  names = [name for part in splits.values() for name in part.names]
  assert sorted(names, key=int) == [*map(str, range(60))]
  assert texts(splits) == texts(recall.load(data()))


def test_more_keys_than_letters_are_refused():
  with pytest.raises(errors.InputError) as raised:
    recall.load(data(pairs=9))
  assert str(raised.value) == (
    "data.synthetic.pairs=9: data.source='recall' needs a letter for each, and "
    'data.synthetic.symbols=8: give fewer pairs or more symbols'
  )
  assert len(copying.load(data(pairs=9))['train']) == 48  # letters may repeat


@pytest.mark.parametrize('source', ('recall', 'copying', 'selective_copying'))
def test_a_sample_continues_a_text_of_the_options(source):
  options = dataclasses.replace(SMALL, pairs=2, symbols=2, distance=5)
  prompt = config.section('data', source=source, synthetic=options).prompt()
  assert prompt.endswith('=') and prompt.count('=') == 1
  assert {*prompt.lower()} <= {*'ab.?='}
  assert '.....' in prompt or source == 'selective_copying'
  assert config.section('data', source='python_stdlib').prompt() == ''
