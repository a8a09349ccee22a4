"""Data sets by name: given ones, docstrings without, refusals."""

import json

import pytest

from benchmarks import datasets
from benchmarks.subjects import batching
from rnn_jax import errors


def give(folder, monkeypatch, text):
  path = folder / 'some.jsonl'
  rows = [{'line': 'x' * n} for n in range(1, 60)]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  monkeypatch.setenv(datasets.VARIABLE, text.format(path=path))
  return path


def test_given_data_sets_are_files_and_columns(tmp_path, monkeypatch):
  path = give(tmp_path, monkeypatch, 'a={path}:line,b={path}:other')
  assert datasets.names() == ['a', 'b']
  found = datasets.overrides('b', tmp_path)
  assert found == {'source': 'jsonl', 'path': str(path), 'field': 'other'}


def test_a_text_has_no_column(tmp_path, monkeypatch):
  path = tmp_path / 'some.txt'
  path.write_text('abc')
  monkeypatch.setenv(datasets.VARIABLE, f'a={path}')
  found = datasets.overrides('a', tmp_path)
  assert found == {'source': 'text', 'path': str(path)}


def test_without_any_there_are_docstrings(tmp_path, monkeypatch):
  monkeypatch.delenv(datasets.VARIABLE, raising=False)
  assert datasets.names() == [datasets.DOCSTRINGS]
  found = datasets.overrides(datasets.DOCSTRINGS, tmp_path, limit=20)
  lines = (tmp_path / 'docstrings.jsonl').read_text().splitlines()
  assert found['path'].endswith('docstrings.jsonl') and len(lines) == 20
  assert all(json.loads(line)['text'] for line in lines)


@pytest.mark.parametrize(
  ('text', 'message'),
  (
    ('{path}', 'give NAME=PATH.jsonl:COLUMN'),
    ('a={path}', 'give NAME=PATH.jsonl:COLUMN|no such file'),
    ('a={path}x:line', 'no such file'),
  ),
)
def test_a_wrong_one_is_refused(tmp_path, monkeypatch, text, message):
  give(tmp_path, monkeypatch, text)
  with pytest.raises(
    errors.InputError, match=f'{datasets.VARIABLE}.*{message}'
  ):
    datasets.names()


def test_an_unknown_one_is_refused(tmp_path, monkeypatch):
  give(tmp_path, monkeypatch, 'a={path}:line')
  with pytest.raises(errors.InputError, match=r"no 'b': it has \['a'\]"):
    datasets.overrides('b', tmp_path)


@pytest.mark.parametrize(
  'data',
  (
    {'layout': 'sorted', 'pool': 2},
    {'layout': 'stream'},
    {'boundaries': (20, 64)},
    {'growth': (16, 100)},
    {'curriculum': 'length', 'rarity_buckets': 2},
  ),
  ids=lambda data: [*data][0],
)
def test_an_epoch_is_read_to_its_end(tmp_path, monkeypatch, data):
  give(tmp_path, monkeypatch, 'a={path}:line')
  monkeypatch.setattr(batching, '_step_seconds', lambda *_: 1.0)
  small = {'tokens_per_batch': 256, 'workers': 0, 'stretch': 64}
  values = batching.epoch(2, 'a', small | data)
  assert values['examples'] == 59 and values['repeats'] == 2
  assert values['length'] == 60
  # Two epochs, what waits at their end apart: bytes and a boundary each.
  tokens = sum(range(1, 60)) + 59
  assert 0.7 * tokens < values['tokens'] < 1.3 * tokens
  assert 0 < values['padding_efficiency'] <= 1
  assert 1 <= len(values['shapes']) <= values['possible_shapes']


def test_a_budget_decides_the_rows_and_steps_are_timed(tmp_path, monkeypatch):
  give(tmp_path, monkeypatch, 'a={path}:line')
  budget = {'tokens_per_batch': 0, 'memory_gib': 0.02, 'workers': 0}
  values = batching.epoch(1, 'a', budget | {'buckets': 1})
  assert values['shapes'] == [(values['batch_tokens'] // 60, 60)]
  assert values['trained_per_second'] > 0
