"""What report.md says about handwritten rows."""

import json
import re

import pytest

from rnn_jax import errors
from rnn_jax.experiments import costs
from rnn_jax.experiments import report
from rnn_jax.experiments import summary
from tests.experiments import made

GRID = made.grid(notes={'narrow': {'loss': 2.25}})
ROWS = made.rows(
  made.row('narrow', 0, {'loss': 2.0, 'accuracy': 0.5}, seconds=4.0),
  made.row('narrow', 1, {'loss': 4.0, 'accuracy': 0.6}, seconds=8.0),
  made.row('wide', 0, {'loss': 2.5, 'accuracy': 0.42}, parameters=54321),
  made.row('wide', 1, {'loss': 2.9, 'accuracy': 0.48}, overrides={'a.b': 'c'}),
  made.row('wide', 2, error='train: too much'),
)


def page(rows=ROWS, grid=GRID):
  return report.page(summary.summarize(grid, rows))


def cells(text, start):
  """The cells of the first table row that begins so."""
  rows = [x.strip('|').split('|') for x in text.splitlines() if x[:1] == '|']
  rows = [[cell.strip() for cell in row] for row in rows]
  return next(row for row in rows if row[0] == start)


def test_the_table_of_means():
  text = page()
  assert cells(text, 'variant') == [
    *('variant', 'runs', 'loss ↓', 'accuracy ↑', 'training s ↓'),
    *('tokens/s ↑', 'process peak MiB', 'parameters'),
  ]
  # Deviations: sqrt 2, sqrt 0.005 = .0707, sqrt 8 = 2.828, sqrt 0.0018 = .0424.
  assert cells(text, 'narrow') == [
    *('narrow', '2', '3.000 ± 1.414', '**0.5500 ± 0.0707**'),
    *('**6.000 ± 2.828**', '2,000 ± 0', '3.000 ± 0.000', '1,234'),
  ]
  assert cells(text, 'wide')[:4] == [
    *('wide', '2, 1 failed', '2.700 ± 0.283', '0.4500 ± 0.0424'),
  ]
  assert cells(text, 'narrow (published)') == [
    *('narrow (published)', '', '2.250', *['-'] * 5),
  ]


def test_ratios_to_the_baseline():
  text = page().partition('Divided by the means of `narrow`')[2]
  assert cells(text, 'wide') == [
    *('wide', '0.90', '0.82', '1.67', '1.00', '1.00', '22.51'),
  ]
  assert '| narrow ' not in text
  assert 'Divided' not in page(grid=made.grid(baseline=''))


def test_a_sentence_a_metric():
  loss, accuracy, *_ = report.sentences(summary.summarize(GRID, ROWS))
  assert loss == (
    'loss (lower is better): no difference seen between the best: wide 2.700, '
    'narrow 3.000 (spread over seeds: 1.1).'
  )
  assert accuracy == (
    'accuracy (higher is better): narrow leads with 0.5500, before wide with '
    '0.4500; the difference, 0.1, exceeds its spread over seeds, 0.028.'
  )


SENTENCES = {
  'one seed': (
    [('narrow', 0, 2.0), ('wide', 0, 2.5), ('wide', 1, 2.7)],
    'narrow leads.*0.6, rests on one seed: its spread over seeds is unknown',
  ),
  'one variant': ([('wide', 0, 2.5)], 'only wide has a score, 2.500'),
  'level': (
    [('narrow', 0, 2.0), ('wide', 0, 2.000003)],
    'no difference seen.*narrow 2.000, wide 2.000 .*unknown, one seed',
  ),
  'none': ([('wide', 0, None)], 'no variant has a score'),
}


@pytest.mark.parametrize('case', SENTENCES)
def test_other_sentences(case):
  made_rows, expected = SENTENCES[case]
  rows = made.rows(*(made.row(v, s, {'loss': x}) for v, s, x in made_rows))
  sentence = report.sentences(summary.summarize(GRID, rows))[0]
  assert re.search(expected, sentence), sentence


def test_failures_variants_and_versions():
  text = page()
  assert '* wide/seed2 failed: train: too much' in text
  assert '* narrow: the config as it is' in text
  assert text.endswith(
    'Run on an unknown machine, with python 3.11, jax 0.10; commit abc.\n'
  )
  on = {'device': 'a processor', 'cores': 2}
  row = made.row('wide', 0, {'loss': 1.0}) | on
  assert 'Run on a processor, 2 cores, with python' in page(made.rows(row))
  other = made.row('narrow', 0, {'loss': 2.0}, device='another', cores=1)
  both = page(made.rows(row, other))
  assert 'another, 1 core and a processor, 2 cores, whose times are not' in both
  assert 'process peak MiB' in both and 'tokens/s' not in both
  untimed = {k: v for k, v in other.items() if k not in costs.OF_MACHINE}
  one = page(made.rows(row, untimed))
  assert '1 core and a processor, 2 cores, times on a processor, 2 c' in one
  assert 'tokens/s' in one
  assert "wide/seed0: no finite 'accuracy'; the scores are loss" in page(
    made.rows(made.row('wide', 0, {'loss': 1.0}))
  )


def test_the_files(tmp_path):
  rows = {
    (variant, seed): row | {'curve': [[5, 1.0, 2.0 + seed]]}
    for (variant, seed), row in ROWS.items()
  }
  summary = report.write(GRID, rows, str(tmp_path))
  assert summary['variants']['wide']['done'] == 2
  page = (tmp_path / 'report.md').read_text()
  shown = re.findall(r'!\[[^]]*\]\((.*?)\)', page)
  assert shown == ['curves.png', 'scores.png', 'memory_quality.png']
  assert all((tmp_path / name).is_file() for name in shown)
  values = json.loads((tmp_path / 'report.json').read_text())
  assert values['variants']['wide']['figures']['loss']['values'] == {
    '0': 2.5,
    '1': 2.9,
  }


def test_without_runs_there_is_no_report(tmp_path):
  rows = made.rows(made.row('of another grid', 0, {'loss': 1.0}))
  with pytest.raises(errors.InputError, match='no run of this grid has ended'):
    report.write(GRID, rows, str(tmp_path))
  assert not [*tmp_path.iterdir()]
