"""Predictions as JSON lines and as tables."""

import csv
import json

import pytest
from pyarrow import parquet

from rnn_jax import errors
from rnn_jax.inference import predict_output

ROWS = [
  {
    'id': n,
    'text': text,
    'tags': ['a', n],
    'label': 'good',
    'probabilities': {'bad': 0.25, 'good': 0.75},
  }
  for n, text in enumerate(('a, "b"; ü', 'c\rd\ne', ''))
]


def written(path, rows=ROWS, delimiter=','):
  with predict_output.opened(str(path), delimiter) as write:
    write(rows[:1])
    write(rows[1:])
  return path


@pytest.mark.parametrize('delimiter', (',', ';'))
def test_csv_has_a_column_for_each_class(tmp_path, delimiter):
  path = written(tmp_path / 'A.CSV', delimiter=delimiter)
  with path.open(encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file, delimiter=delimiter))
  assert [row['text'] for row in rows] == [row['text'] for row in ROWS]
  assert rows[1] == {
    'id': '1',
    'text': 'c\rd\ne',
    'tags': '["a", 1]',
    'label': 'good',
    'probability_bad': '0.25',
    'probability_good': '0.75',
  }


def test_tsv_has_no_quotes(tmp_path):
  path = written(tmp_path / 'a.tsv', ROWS[::2])
  lines = path.read_text(encoding='utf-8').splitlines()
  assert lines[1] == '0\ta, "b"; ü\t["a", 0]\tgood\t0.25\t0.75'
  with pytest.raises(errors.InputError, match=r"has '\\n', which \*.tsv can't"):
    written(tmp_path / 'b.tsv')
  # The rows before it are written.
  assert len((tmp_path / 'b.tsv').read_text().splitlines()) == 2


def test_parquet_has_the_types(tmp_path):
  rows = [{**row, 'tags': [row['id']]} for row in ROWS]
  read = parquet.read_table(written(tmp_path / 'a.parquet', rows)).to_pylist()
  assert read == rows
  with pytest.raises(
    errors.InputError, match='rows of 1 and after have other colu'
  ):
    written(tmp_path / 'b.parquet', [*rows, {**rows[0], 'id': 'x'}])
  assert len(parquet.read_table(tmp_path / 'b.parquet')) == 1


@pytest.mark.parametrize('suffix', ('csv', 'parquet', 'jsonl'))
def test_the_first_rows_may_have_no_label(tmp_path, suffix):
  rows = [{'id': 0, 'label': None}, {'id': 1, 'label': 'good'}]
  path = written(tmp_path / f'a.{suffix}', rows)
  if suffix == 'parquet':
    assert parquet.read_table(path).to_pylist() == rows
  elif suffix == 'jsonl':
    assert [*map(json.loads, path.read_text().splitlines())] == rows
  else:
    assert path.read_text() == 'id,label\n0,\n1,good\n'


@pytest.mark.parametrize('name', ('a.jsonl', 'a.json', 'a'))
def test_other_names_have_json_lines(tmp_path, name):
  text = written(tmp_path / name).read_text(encoding='utf-8')
  assert [json.loads(line) for line in text.splitlines()] == ROWS
  with pytest.raises(errors.InputError, match='exists already: remove it'):
    written(tmp_path / name)


def test_names_and_rows_that_do_not_fit_are_refused(tmp_path):
  with pytest.raises(
    errors.InputError, match=r"--output='a.xlsx': give a name"
  ):
    predict_output.check('a.xlsx')
  other = [*ROWS[:1], {'id': 7, 'new': 1}]
  with pytest.raises(errors.InputError, match="row 7 has the column 'new'"):
    written(tmp_path / 'a.csv', other)
  twice = [{**ROWS[0], 'probability_bad': 1}]
  with pytest.raises(errors.InputError, match="would be 'probability_bad'"):
    written(tmp_path / 'b.csv', twice)
