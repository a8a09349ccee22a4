"""Marked parts of documents are renewed; no figure without a row."""

import json
import pathlib
import re

import pytest

from benchmarks import figures
from benchmarks import grids
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
  text = report.section('decode', figures.Source(docs, tmp_path))
  assert text == 'Not measured yet: `python -m benchmarks.run --suite=decode`.'


def test_an_unknown_report_and_a_folder_without_marks_are_refused(docs):
  with pytest.raises(errors.InputError, match='no file holds a mark'):
    report.write(docs, docs)
  (docs / 'a.md').write_text('<!-- benchmarks: bogus -->\n<!-- end -->')
  with pytest.raises(errors.InputError, match="suite='bogus': choose one of"):
    report.write(docs, docs)


def test_every_report_of_the_repository_is_what_its_rows_say():
  docs = pathlib.Path(report.__file__).parents[1] / 'docs'
  names = {path.name for path in report.pages(docs)}
  assert {'benchmarks.md', 'recurrence.md', 'results.md'} <= names
  assert report.check(docs, rows_lib.RESULTS) == []


def place(docs, text, *found):
  """Adds an entry of page.md to figures.toml."""
  with (docs / 'figures.toml').open('a') as file:
    file.write('[["docs/page.md"]]\n')
    file.write(f'text = {json.dumps(text)}\nfigures = {json.dumps(found)}\n')


def test_numbers_of_sentences_come_from_rows(docs, tmp_path):
  row = made.row('main job: warm', 0.5, ratio=0.891, base='main job: cold')
  row |= {'ratio_low': 0.86, 'ratio_high': 1.0, 'share': {'all': 0.25}}
  row['curve'] = [[1, 2.5], [2, 1.75]]
  made.write(tmp_path, 'first_step', [row])
  begin = 'first_step', 'main job: warm'
  page = docs / 'page.md'
  page.write_text('| job | 9 | It\ntakes 9 times (.9 to\n1), 0 %, 1.\n| 9 |')
  place(docs, '| job | {} |', [*begin, 'share.all', 'percent'])
  place(
    docs,
    'It takes {} times ({}), {}, {}. |',
    [*begin, 'ratio', '.2f'],
    [*begin, 'ratio', 'interval'],
    [*begin, 'share.all', 'percent'],
    [*begin, 'curve.1.1', '.2f'],
  )
  assert report.write(docs, tmp_path) == [page]
  want = (
    '| job | 25.0 % | It\ntakes .89 times (.86 to 1.00), 25.0 %, 1.75.\n| 9 |'
  )
  assert page.read_text() == want
  # A number may be divided between lines.
  page.write_text(want.replace('25.0 %,', '25.0\n%,'))
  report.write(docs, tmp_path)
  assert page.read_text() == want.replace('25.0 %,', '25.0\n%,')


def test_numbers_of_sentences_come_from_reports_of_grids(docs, tmp_path):
  figure = {'mean': 0.5, 'deviation': 0.125}
  variants = {'simple': {'figures': {'accuracy': figure}}}
  folder = docs / 'experiments' / 'reviews'
  folder.mkdir(parents=True)
  (folder / 'report.json').write_text(json.dumps({'variants': variants}))
  page = docs / 'page.md'
  page.write_text('It has 1 here.')
  found = ['experiments/reviews', 'simple', 'accuracy', '.3f']
  place(docs, 'It has {} here.', found)
  report.write(docs, tmp_path)
  assert page.read_text() == 'It has .500 ± .125 here.'
  figure['mean'] = None
  (folder / 'report.json').write_text(json.dumps({'variants': variants}))
  with pytest.raises(errors.InputError, match='has no run of that variant'):
    report.write(docs, tmp_path)


def test_the_table_of_all_grids_sums_their_hours(docs):
  folder = docs / 'experiments' / 'digits'
  folder.mkdir(parents=True)
  (folder / 'report.json').write_text(json.dumps({'title': 'Digits'}))
  rows = (
    {'seed': 0, 'seconds': 7200.0, 'curve': [[10, 9.0, 1.5]]},
    {'seed': 1, 'curve': [[10, 1000.0, 1.5], [20, 1800.0, 1.25]]},
    {'seed': 2, 'curve': []},
  )
  lines = (json.dumps({'variant': 'small'} | row) for row in rows)
  (folder / 'runs.jsonl').write_text('\n'.join(lines))
  table = grids.section('all', docs).splitlines()
  link = '[Digits](experiments/digits/report.md)'
  assert table[2:] == [
    f'| {link} | `digits` | 3 | 2.5 |',
    '| all |  | 3 | 2.5 |',
  ]


def test_a_number_may_be_that_of_one_seed(docs, tmp_path):
  folder = docs / 'experiments' / 'reviews'
  folder.mkdir(parents=True)
  row = {'variant': 'simple', 'seed': 3, 'losses': [[1, 2.5], [2, 1.75]]}
  (folder / 'runs.jsonl').write_text(json.dumps(row))
  source = figures.Source(docs, tmp_path)

  def number(key):
    return figures.read(
      figures.Figure('experiments/reviews', 'simple', key, '.2f'), source
    )

  assert number('3.losses.1.1') == '1.75'
  for key, message in (
    ('2.losses.1.1', 'has no such figure'),
    ('3.losses', 'choose a number'),
  ):
    with pytest.raises(errors.InputError, match=message):
      number(key)


@pytest.mark.parametrize(
  ('figure', 'message'),
  (
    (('bogus', 'a', 'b', 'c'), "suite='bogus': choose one of"),
    (('first_step', 'main job: warm'), 'give [suite, case, key, form]'),
    (('first_step', 'nobody', 'median', '.2f'), 'it: --suite=first_step'),
    (('first_step', 'main job: cold', 'median', '.2f'), 'no such row'),
    (('first_step', 'main job: warm', 'nothing', '.2f'), 'choose a number of'),
    (('first_step', 'main job: warm', 'curve.1.0', '.2f'), 'choose a number'),
    (('first_step', 'main job: warm', 'median', 'bogus'), 'Invalid format'),
    (('experiments/none', 'a', 'b', '.2f'), 'has no such figure'),
  ),
)
def test_a_figure_without_a_row_is_refused(docs, tmp_path, figure, message):
  warm = made.row('main job: warm', 0.5) | {'curve': [[1, 2.5]]}
  rows = [warm, made.failed('main job: cold', 'x')]
  made.write(tmp_path, 'first_step', rows)
  (docs / 'page.md').write_text('It has 1 here.')
  place(docs, 'It has {} here.', figure)
  with pytest.raises(errors.InputError, match=re.escape(message)):
    report.write(docs, tmp_path)


@pytest.mark.parametrize(
  ('text', 'message'),
  (
    ('It had {} here.', "text='It had {} here.' is 0 times on its page"),
    ('t{}e', "text='t{}e' is 2 times on its page"),
    ('It has {}', 'begin and end it with words'),
    ('It has 1 here.', 'has 0 {} and 1 figures'),
  ),
)
def test_a_figure_without_a_place_is_refused(docs, tmp_path, text, message):
  made.write(tmp_path, 'first_step', [made.row('main job: warm', 0.5)])
  (docs / 'page.md').write_text('It has 1 here. t1e t2e')
  place(docs, text, ['first_step', 'main job: warm', 'median', '.2f'])
  with pytest.raises(errors.InputError, match=re.escape(message)):
    report.check(docs, tmp_path)


@pytest.mark.parametrize(
  ('toml', 'message'),
  (
    ('[[', 'figures.toml: '),
    ('[["docs/none.md"]]\n', "page 'docs/none.md': no such file"),
    ('[["docs/page.md"]]\ntext = "a {} b"\n', 'give text and figures'),
  ),
)
def test_a_damaged_list_of_figures_is_refused(docs, tmp_path, toml, message):
  (docs / 'page.md').write_text('a 1 b')
  (docs / 'figures.toml').write_text(toml)
  with pytest.raises(errors.InputError, match=re.escape(message)):
    report.check(docs, tmp_path)


def test_a_check_names_what_the_rows_do_not_say(docs, tmp_path):
  (case,) = (c for c in first_step.cases(False) if c.name.endswith('cold'))
  row = made.row('main job: cold', 0.5, floor=0.01) | case.identity()
  made.write(tmp_path, 'first_step', [row])
  page = docs / 'page.md'
  found = ['first_step', 'main job: cold', 'median', '.1f']
  place(docs, 'It has {} here.', found)
  page.write_text('It has .5 here.')
  assert not report.check(docs, tmp_path)
  page.write_text('It has .4 here. **confirmed**')
  assert [
    line.rpartition(': ')[2] for line in report.check(docs, tmp_path)
  ] == [
    'run python -m benchmarks.report',
    'a verdict comes from rows',
  ]
  page.write_text('It has .5 here.')
  for changed, message in (
    ({'floor': 0.06}, 'its noise floor is 6 %'),
    ({'parameters': {'cached': True}}, 'the case has other parameters today'),
  ):
    made.write(tmp_path, 'first_step', [row | changed])
    (line,) = report.check(docs, tmp_path)
    assert line.startswith('page.md: figures.toml: ["first_step"')
    assert message in line
