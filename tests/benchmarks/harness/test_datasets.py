"""Data sets by name: given ones, docstrings without, refusals."""

import json

import pytest

from benchmarks.harness import datasets
from rnn_jax import errors
from tests.benchmarks import made


def test_given_data_sets_are_files_and_columns(tmp_path, monkeypatch):
  path = made.give_data(tmp_path, monkeypatch, 'a={path}:line,b={path}:other')
  assert datasets.names() == ['a', 'b']
  keys = datasets.overrides('b', tmp_path)
  assert keys == {'source': 'jsonl', 'path': str(path), 'field': 'other'}


def test_a_text_has_no_column(tmp_path, monkeypatch):
  path = tmp_path / 'some.txt'
  path.write_text('abc')
  monkeypatch.setenv(datasets.VARIABLE, f'a={path}')
  keys = datasets.overrides('a', tmp_path)
  assert keys == {'source': 'text', 'path': str(path)}


def test_without_any_there_are_docstrings(tmp_path, monkeypatch):
  monkeypatch.delenv(datasets.VARIABLE, raising=False)
  assert datasets.names() == [datasets.DOCSTRINGS]
  keys = datasets.overrides(datasets.DOCSTRINGS, tmp_path, limit=20)
  lines = (tmp_path / 'docstrings.jsonl').read_text().splitlines()
  assert keys['path'].endswith('docstrings.jsonl') and len(lines) == 20
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
  made.give_data(tmp_path, monkeypatch, text)
  with pytest.raises(
    errors.InputError, match=f'{datasets.VARIABLE}.*{message}'
  ):
    datasets.names()


def test_an_unknown_one_is_refused(tmp_path, monkeypatch):
  made.give_data(tmp_path, monkeypatch, 'a={path}:line')
  with pytest.raises(errors.InputError, match=r"no 'b': it has \['a'\]"):
    datasets.overrides('b', tmp_path)
