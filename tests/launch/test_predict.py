"""`launch.predict` and `launch.evaluate --input`, of a run without its data."""

import csv
import json

import pyarrow
import pytest
from pyarrow import parquet

import rnn_jax
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import classifiers
from tests.support import launchers
from tests.support import tiny

TEXTS = classifiers.texts()


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
  return classifiers.write_texts(tmp_path_factory.mktemp('runs') / 'texts')


@pytest.fixture(scope='module', name='answers')
def _answers(run):
  """(label, probabilities) of each of TEXTS."""
  predictions = rnn_jax.load(run).predict(TEXTS)
  return [(each.label, each.probabilities) for each in predictions]


def predicted(run, *flags, stdin=''):
  code, out, err = launchers.run(
    'predict', f'--workdir={run}', *flags, stdin=stdin
  )
  assert code == 0, err
  return classifiers.read_rows(out)


def answers_of(rows, label='label'):
  return [(row[label], row['probabilities']) for row in rows]


def test_rows_keep_their_columns(run, answers, tmp_path):
  path = classifiers.write_rows(tmp_path / 'rows.jsonl', TEXTS, key='k')
  out = tmp_path / 'out.jsonl'
  flags = f'--workdir={run}', f'--input={path}', f'--output={out}'
  code, _, err = launchers.run('predict', *flags)
  assert code == 0, err
  rows = classifiers.read_rows(out.read_text(encoding='utf-8'))
  assert answers_of(rows) == answers
  assert [*rows[0]] == [
    'id', 'text', 'input_label', 'key', 'label', 'probabilities',
  ]  # fmt: skip
  assert [row['id'] for row in rows] == [*range(len(TEXTS))]
  assert [row['input_label'] for row in rows[:3]] == [*classifiers.CLASSES]
  code, _, err = launchers.run('predict', *flags)
  assert code == 1 and 'it exists already: remove it' in err


@pytest.mark.parametrize('suffix', ('csv', 'tsv', 'txt', 'parquet'))
def test_formats(run, answers, tmp_path, suffix):
  path = tmp_path / f'rows.{suffix}'
  ids = [f'n{n}' for n in range(len(TEXTS))]
  if suffix == 'parquet':
    parquet.write_table(pyarrow.table({'id': ids, 'text': TEXTS}), path)
  elif suffix == 'txt':
    path.write_text('\n'.join(TEXTS))
  else:
    mark = {'csv': ',', 'tsv': '\t'}[suffix]
    pairs = [('id', 'text'), *zip(ids, TEXTS, strict=True)]
    path.write_text('\n'.join(map(mark.join, pairs)))
  rows = predicted(run, f'--input={path}')
  assert answers_of(rows) == answers
  numbered = [*range(len(TEXTS))]
  wanted = numbered if suffix == 'txt' else ids
  assert [row['id'] for row in rows] == wanted


@pytest.mark.parametrize('suffix', ('csv', 'parquet'))
def test_the_name_of_the_output_decides_its_format(run, tmp_path, suffix):
  path, out = tmp_path / 'rows.csv', tmp_path / f'out.{suffix}'
  path.write_text('\ufeffid;text;x\r\n' + 'n;"a; b";\r\n' * 3)
  flags = f'--workdir={run}', f'--input={path}', f'--output={out}'
  code, _, err = launchers.run('predict', *flags)
  assert code == 0, err
  if suffix == 'parquet':
    rows = parquet.read_table(out).to_pylist()
  else:
    with out.open(encoding='utf-8', newline='') as file:
      rows = list(csv.DictReader(file, delimiter=';'))
    names = [f'probability_{name}' for name in classifiers.CLASSES]
    assert [*rows[0]] == ['id', 'text', 'x', 'label', *names]
  assert [row['text'] for row in rows] == ['a; b'] * 3
  assert {row['label'] for row in rows} <= {*classifiers.CLASSES}


def test_columns_that_json_lacks_are_left_out(run, tmp_path, caplog):
  path = tmp_path / 'rows.parquet'
  table = {'text': TEXTS[:2], 'blob': [b'x', b'y'], 'n': [1, 2]}
  parquet.write_table(pyarrow.table(table), path)
  rows = predicted(run, f'--input={path}')
  assert [*rows[0]] == ['id', 'text', 'n', 'label', 'probabilities']
  assert caplog.text.count("column 'blob' is left out: JSON has no bytes") == 1


def test_standard_input_is_json_lines_or_text(run, answers):
  rows = [{'review': text, 'n': n} for n, text in enumerate(TEXTS)]
  lines = '\n'.join(map(json.dumps, rows))
  made = predicted(run, '--input=-', '--text=review', '--id=n', stdin=lines)
  assert answers_of(made) == answers and made[4]['id'] == made[4]['n'] == 4
  made = predicted(run, '--input=-', stdin='\n'.join(TEXTS))
  assert answers_of(made) == answers
  made = predicted(run, '--input=-', '--format=text', stdin='{"text": "a"}\n')
  assert made[0]['text'] == '{"text": "a"}'


def test_a_malformed_row_ends_it_after_those_before(run, answers):
  lines = [json.dumps({'text': text}) for text in TEXTS[:2]]
  for bad, message in (
    ('{"text": 3}', "standard input:3: 'text' is int, not text"),
    ('{"text"', 'standard input:3: not JSON'),
    ('{"body": "a"}', "standard input:3: no column 'text': name one of ['body"),
    (
      '{"text": "a", "label": 1, "input_label": 2}',
      "'label' would be kept as 'input_label', which is a column too",
    ),
  ):
    code, out, err = launchers.run(
      'predict',
      f'--workdir={run}',
      '--input=-',
      stdin='\n'.join([*lines, bad, *lines]),
    )
    assert code == 1 and 'Traceback' not in err
    assert message in err.splitlines()[-1]
    assert answers_of(classifiers.read_rows(out)) == answers[:2]


def test_input_is_refused_before_the_model_is_read(run, tmp_path, monkeypatch):
  def load(*_):
    raise AssertionError('the model was read')

  monkeypatch.setattr('rnn_jax.inference.model.load', load)
  (tmp_path / 'rows.data').write_text('a')
  (tmp_path / 'empty.csv').write_text('')
  (tmp_path / 'rows.csv').write_text('body,n\na,1\n')
  for given, message in (
    ('none.csv', "none.csv': no such file (searched in"),
    ('rows.data', "its name doesn't show its format: name it one of"),
    ('empty.csv', 'the file is empty: fill it'),
    ('rows.csv', "rows.csv:2: no column 'text': name one of ['body', 'n']"),
    ('.', 'a folder: give a file'),
  ):
    path = tmp_path / given
    code, out, err = launchers.run(
      'predict', f'--workdir={run}', f'--input={path}'
    )
    assert (code, out) == (1, '') and message in err, err


def test_a_file_is_a_split_of_its_own(run, answers, tmp_path):
  path = tmp_path / 'new.csv'
  rows = [f'{text},{n % 3}' for n, text in enumerate(TEXTS)]
  path.write_text('\n'.join(['text,label', *rows]))
  flags = f'--workdir={run}', f'--input={path}', '--json'
  code, out, err = launchers.run('evaluate', *flags)
  assert code == 0, err
  row = json.loads(out)
  assert row['split'] == path.name and row['predictions'] == len(TEXTS)
  folder = run / 'evaluation' / path.name
  assert json.loads((folder / 'scores.json').read_text()) == row
  rows = classifiers.read_rows((folder / 'predictions.jsonl').read_text())
  assert answers_of(rows, 'predicted') == answers
  assert [each['label'] for each in rows[:3]] == [*classifiers.CLASSES]
  hits = [each['label'] == each['predicted'] for each in rows]
  assert row['accuracy'] == pytest.approx(sum(hits) / len(hits))
  assert rows[0]['name'] == 'new.csv:2'


def test_other_files_are_refused_in_one_line(run, tmp_path):
  (tmp_path / 'a.txt').write_text('a')
  (tmp_path / 'a.csv').write_text('text,label\na,9\n')
  for flags, message in (
    (('--input=none.jsonl',), 'no such file (searched in'),
    ((f'--input={tmp_path}/a.txt',), 'a file of text has no classes'),
    ((f'--input={tmp_path}/a.csv',), "a.csv:2: label='9' isn't one of the"),
    (
      (f'--input={tmp_path}/a.csv', '--split=test'),
      "--split='test': only prepared:NAME has splits",
    ),
    (('--input=a', '--accept_new_data'), '--input is new data: leave it out'),
    (('--input=prepared:none',), 'see launch.prepare --help'),
  ):
    code, _, err = launchers.run('evaluate', f'--workdir={run}', *flags)
    assert code == 1 and message in err and 'Traceback' not in err, err


@pytest.mark.parametrize('task', ('language_modeling', 'dialogue'))
def test_texts_and_dialogues_are_evaluated_too(task, tmp_path):
  raw = tiny.raw_config('gone')
  raw.task.name = task
  path = tmp_path / 'new.txt'
  path.write_text('the state reads a gate\nthe gate writes\nit forgets\n')
  if task == 'dialogue':
    raw.task.reply_tokens = 4
  bundle_lib.write(bundles.make(raw, tokenizer_lib.Bytes()), tmp_path / 'run')
  flags = f'--workdir={tmp_path / "run"}', f'--input={path}', '--json'
  code, out, err = launchers.run('evaluate', *flags)
  assert code == 0, err
  row = json.loads(out)
  assert row['split'] == 'new.txt' and row['documents'] == 1
  if task == 'dialogue':
    assert row['predictions'] == 2 and 'bleu' in row
  else:
    assert row['bits_per_byte'] > 0 and row['bytes'] == path.stat().st_size
