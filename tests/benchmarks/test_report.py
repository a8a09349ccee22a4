"""Marked parts of documents are renewed; no figure without a row."""

import pathlib
import shutil

import pytest

from benchmarks import report
from benchmarks.harness import rows as rows_lib
from rnn_jax import errors
from tests.benchmarks import made


@pytest.fixture(name='docs')
def _docs(tmp_path):
  folder = tmp_path / 'docs'
  folder.mkdir()
  return folder


def test_marked_parts_are_renewed_and_the_rest_is_kept(docs, tmp_path):
  page = docs / 'page.md'
  page.write_text(
    'before\n<!-- benchmarks: pipeline -->\nold\n<!-- end -->after\n'
  )
  (docs / 'other.md').write_text('nothing')
  values = {'waiting_share': 0.25, 'tokens_per_second': 1234.0}
  made.write(tmp_path, 'pipeline', [made.row('stream: both', 0.5, **values)])
  assert report.write(docs, tmp_path) == [page]
  text = page.read_text()
  assert text.startswith('before\n') and text.endswith('<!-- end -->after\n')
  assert '| stream: both | 500 ms ± 0.00 µs | 1,234 | 25.0 % |' in text
  assert 'old' not in text
  assert report.write(docs, tmp_path) == [page]
  assert page.read_text() == text


def test_without_rows_a_part_says_how_to_measure(docs, tmp_path):
  text = report.section('decode', docs, tmp_path)
  assert text == 'Not measured yet: `python -m benchmarks.run --suite=decode`.'


def test_an_unknown_report_and_a_folder_without_marks_are_refused(docs):
  with pytest.raises(errors.InputError, match='no file holds a mark'):
    report.write(docs, docs)
  (docs / 'a.md').write_text('<!-- benchmarks: bogus -->\n<!-- end -->')
  with pytest.raises(errors.InputError, match="NAME='bogus': choose one of"):
    report.write(docs, docs)


def test_every_report_of_the_repository_renders(docs, tmp_path):
  marked = tmp_path / 'marked'
  root = pathlib.Path(report.__file__).parents[1]
  shutil.copytree(root / 'docs', marked, ignore=lambda *_: ['plots'])
  names = {path.name for path in report.write(marked, rows_lib.RESULTS)}
  assert {'benchmarks.md', 'recurrence.md', 'results.md'} <= names
