"""Separated values as spreadsheets and libraries write them."""

import pytest

from rnn_jax import errors
from rnn_jax.data.tables import csv
from rnn_jax.data.tables import lines
from tests.support import files

ROWS = [{'id': '7', 'text': 'a, b; "c"\nd'}, {'id': '8', 'text': 'ü'}]


def read(path, content, given='', name='a.csv'):
  path /= name
  path.write_bytes(content)
  dialect = csv.dialect(str(path), given=given)
  rows = dialect.rows(lines.Lines(str(path), old_ends=True))
  header = csv.header(rows, dialect)
  return [row for _, row in csv.named(rows, header, dialect)]


def refusal(path, content, given=''):
  with pytest.raises(errors.InputError) as caught:
    read(path, content, given)
  return str(caught.value)


def quoted(separator, end='\r\n'):
  text = end.join(['id;text', '7;"a, b; ""c""\nd"', '8;ü', ''])
  return (
    text.replace('id;', f'id{separator}')
    .replace('7;', f'7{separator}')
    .replace('8;', f'8{separator}')
  )


@pytest.mark.parametrize('separator', (',', ';', '\t'))
@pytest.mark.parametrize('end', ('\n', '\r\n', '\r'))
@pytest.mark.parametrize('mark', ('', '\ufeff'))
def test_the_header_shows_what_separates(tmp_path, separator, end, mark):
  content = (mark + quoted(separator, end)).encode()
  assert read(tmp_path, content) == ROWS


@pytest.mark.parametrize(
  ('content', 'want'),
  (
    ('sep=;\r\nid;text\r\n1;a, b\r\n', [{'id': '1', 'text': 'a, b'}]),
    ('sep=,\nid;x,text\n1,a\n', [{'id;x': '1', 'text': 'a'}]),
    (',text\n0,a\n', [{'index': '0', 'text': 'a'}]),  # pandas' index
    ('"","text"\n"1","a"\n', [{'index': '1', 'text': 'a'}]),  # R's names
    ('id;text;;\n1;a;;\n2;b\n', [{'id': '1', 'text': 'a'}] + [
      {'id': '2', 'text': 'b'}
    ]),
    ('"a;b;c",text\n1,x\n', [{'a;b;c': '1', 'text': 'x'}]),
    ('text\na; b\n', [{'text': 'a; b'}]),
  ),
)  # fmt: skip
def test_what_spreadsheets_and_libraries_add(tmp_path, content, want):
  assert read(tmp_path, content.encode()) == want


def test_an_option_wins(tmp_path):
  assert read(tmp_path, b'a;b|c\n1;2|3\n', '|') == [{'a;b': '1;2', 'c': '3'}]
  assert read(tmp_path, b'a\tb;c;d\n1\t2\n', 'tab') == [
    {'a': '1', 'b;c;d': '2'}
  ]
  for bad in (';;', '"', '\n', 'é'):
    with pytest.raises(errors.InputError, match='data.delimiter=.*give one'):
      csv.check_delimiter(bad, 'data.delimiter')


def test_errors_name_the_separator(tmp_path):
  message = refusal(tmp_path, b'id;text\n1;a;b\n')
  assert (
    "a.csv:2: 3 columns, and the header has 2, separated by ';' " in message
  )
  assert '(by its header): quote values' in message and '--delimiter' in message
  assert "separated by ',' (--delimiter=',')" in refusal(
    tmp_path, b'id;a,b\n1;2\n', ','
  )
  # An empty value that the header doesn't announce may be a shifted row.
  assert '3 columns' in refusal(tmp_path, b'text,label\nhello,good,\n')
  assert 'a.csv:1: the first line must name each' in refusal(
    tmp_path, b'a,,b\n1,2,3\n'
  )
  assert 'sep' in refusal(tmp_path, b'sep=;\nid;id\n') and 'a.csv:2' in refusal(
    tmp_path, b'sep=;\nid;id\n'
  )


def test_a_line_and_a_value_are_bounded(tmp_path, monkeypatch):
  monkeypatch.setattr(csv, 'LONGEST', 50)
  path = str(tmp_path / 'a.csv')
  with open(path, 'w') as file:
    file.write('text\n' + 'a' * 60 + '\n')
  dialect = csv.dialect(path)
  rows = dialect.rows(lines.Lines(path, longest=csv.LONGEST))
  header = csv.header(rows, dialect)
  with pytest.raises(
    errors.InputError, match='a.csv:2: a line has 50 bytes at'
  ):
    next(csv.named(rows, header, dialect))
  message = refusal(tmp_path, b'text\n"' + b'abcdefghi\n' * 9)
  assert 'a value has 50 characters at most' in message


def test_csv_and_tsv(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_bytes(b'\xef\xbb\xbftext,label\r\n"a, ""b""\nc",1\r\nd,0\r\n')
  examples = files.read('csv', path)
  assert examples[0].values == {'text': 'a, "b"\nc', 'label': '1'}
  assert examples[1].where == f'{path}:4'
  (tmp_path / 'a.tsv').write_text('text\tlabel\na, b\t1\n')
  assert files.values('csv', tmp_path / 'a.tsv') == [
    {'text': 'a, b', 'label': '1'}
  ]
  path.write_text('text,label\na,b,c\n')
  message = f'{path}:2: 3 columns, and the header has 2'
  assert files.refusal('csv', path).startswith(message)
  path.write_text('text,text\na,b\n')
  assert 'the first line must name each column once' in files.refusal(
    'csv', path
  )


def test_quotes_among_tabs_are_characters(tmp_path):
  path = tmp_path / 'A.TSV'
  path.write_text('text\tlabel\n"it is\t1\na "third"\t0\nfourth"\t1\n')
  assert files.values('csv', path) == [
    {'text': '"it is', 'label': '1'},
    {'text': 'a "third"', 'label': '0'},
    {'text': 'fourth"', 'label': '1'},
  ]
  path.write_text('text\tlabel\na\tb\t1\n')
  assert files.refusal('csv', path).endswith('a tab ends a value')


def test_a_value_of_csv_may_be_long(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text(f'text,label\n{"x" * 200_000},1\n')
  assert len(files.values('csv', path)[0]['text']) == 200_000
