"""Comma- and tab-separated values."""

from tests.data.preparation.formats import files


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
