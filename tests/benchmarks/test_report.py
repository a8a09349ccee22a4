"""Marked parts of documents are renewed; no figure without a row."""

import json
import pathlib
import re

import pytest

from benchmarks import report
from benchmarks.harness import rows as rows_lib
from benchmarks.suites import first_step
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


def test_every_report_of_the_repository_is_what_its_rows_say():
  docs = pathlib.Path(report.__file__).parents[1] / 'docs'
  names = {path.name for path in report.pages(docs)}
  assert {'benchmarks.md', 'recurrence.md', 'results.md'} <= names
  assert report.check(docs, rows_lib.RESULTS) == []


def quoted(mark, text=''):
  return f'<!-- quote: {mark} -->{text}<!-- end -->'


def test_numbers_of_sentences_come_from_rows(docs, tmp_path):
  row = made.row('main job: warm', 0.5, ratio=0.891, base='main job: cold')
  row |= {'ratio_low': 0.86, 'ratio_high': 1.0, 'share': {'all': 0.25}}
  row['curve'] = [[1, 2.5], [2, 1.75]]
  made.write(tmp_path, 'first_step', [row])
  begin = 'first_step :: main job: warm'
  page = docs / 'page.md'
  page.write_text(
    f'It takes {quoted(f"{begin} :: ratio :: .2f", "9")} times '
    f'({quoted(f"{begin} :: ratio :: interval")}), '
    f'{quoted(f"{begin} :: share.all :: percent")}, '
    f'{quoted(f"{begin} :: curve.1.1 :: .2f")}.'
  )
  assert report.write(docs, tmp_path) == [page]
  assert '-->.89<' in page.read_text() and '-->.86 to 1.00<' in page.read_text()
  assert '-->25.0 %<' in page.read_text()
  assert '-->1.75<' in page.read_text()
  figure = {'mean': 0.5, 'deviation': 0.125}
  variants = {'simple': {'figures': {'accuracy': figure}}}
  folder = docs / 'experiments' / 'reviews'
  folder.mkdir(parents=True)
  (folder / 'report.json').write_text(json.dumps({'variants': variants}))
  mark = 'experiments/reviews :: simple :: accuracy :: .3f'
  page.write_text(quoted(mark))
  report.write(docs, tmp_path)
  assert page.read_text() == quoted(mark, '.500 ± .125')
  figure['mean'] = None
  (folder / 'report.json').write_text(json.dumps({'variants': variants}))
  with pytest.raises(errors.InputError, match='has no run of that variant'):
    report.write(docs, tmp_path)


@pytest.mark.parametrize(
  ('mark', 'message'),
  (
    ('bogus :: a :: b :: c', "SUITE='bogus': choose one of"),
    ('first_step :: main job: warm', 'write SUITE :: CASE :: KEY :: FORM'),
    ('first_step :: nobody :: median :: .2f', 'measure it: --suite=first_step'),
    ('first_step :: main job: cold :: median :: .2f', 'measure it'),
    ('first_step :: main job: warm :: nothing :: .2f', 'choose a number of'),
    ('first_step :: main job: warm :: curve.1.0 :: .2f', 'choose a number of'),
    ('first_step :: main job: warm :: median :: bogus', 'Invalid format'),
    ('experiments/none :: a :: b :: .2f', 'has no such figure'),
  ),
)
def test_a_quote_without_a_row_is_refused(docs, tmp_path, mark, message):
  warm = made.row('main job: warm', 0.5) | {'curve': [[1, 2.5]]}
  rows = [warm, made.failed('main job: cold', 'x')]
  made.write(tmp_path, 'first_step', rows)
  (docs / 'page.md').write_text(quoted(mark))
  with pytest.raises(errors.InputError, match=re.escape(message)):
    report.write(docs, tmp_path)


def test_a_check_names_what_the_rows_do_not_say(docs, tmp_path):
  (case,) = (c for c in first_step.cases(False) if c.name.endswith('cold'))
  row = made.row('main job: cold', 0.5, floor=0.01) | case.identity()
  made.write(tmp_path, 'first_step', [row])
  page = docs / 'page.md'
  mark = 'first_step :: main job: cold :: median :: .1f'
  page.write_text(quoted(mark, '.5'))
  assert not report.check(docs, tmp_path)
  page.write_text(quoted(mark, '.4') + ' **confirmed**')
  assert [
    line.rpartition(': ')[2] for line in report.check(docs, tmp_path)
  ] == [
    'run python -m benchmarks.report',
    'a verdict comes from rows',
  ]
  page.write_text(quoted(mark, '.5'))
  for changed, message in (
    ({'floor': 0.06}, 'its noise floor is 6 %'),
    ({'parameters': {'cached': True}}, 'the case has other parameters today'),
  ):
    made.write(tmp_path, 'first_step', [row | changed])
    (line,) = report.check(docs, tmp_path)
    assert line.startswith('page.md: first_step ::') and message in line
