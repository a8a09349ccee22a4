"""`launch.score`, as a user types it, on a small random model."""

import json
import math

import numpy as np
import pytest

from rnn_jax.data.text import tokenizer
from rnn_jax.inference import score as score_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.inference import runs
from tests.support import launchers

TEXTS = 'the gate', '', 'né <b>'


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  return runs.make(folder, tokenizer.Bytes(), losses=(2.0, 1.0))


@pytest.fixture(scope='module', name='wanted')
def _wanted(run):
  scorer = score_lib.Scorer(bundle_lib.read(run, 'best'))
  return scorer.score(TEXTS, top_k=2)


def rows(tmp_path):
  path = tmp_path / 'rows.jsonl'
  path.write_text(''.join(f'{json.dumps({"text": x})}\n' for x in TEXTS))
  return path


def test_json_has_the_numbers_of_the_scorer(run, wanted, tmp_path):
  path = rows(tmp_path)
  code, out, err = launchers.run(
    'score', f'--workdir={run}', f'--input={path}', '--json', '--top_k=2'
  )
  assert (code, err) == (0, '')
  for number, (line, score) in enumerate(
    zip(out.splitlines(), wanted, strict=True), 1
  ):
    row = json.loads(line)
    assert row['id'] == f'{path}:{number}'
    for key in ('loss', 'logprob', 'perplexity', 'bits_per_byte'):
      assert row[key] == getattr(score, key)
    for key in ('token_count', 'byte_count', 'unknown_count'):
      assert row[key] == getattr(score, key)
    assert [t['logprob'] for t in row['tokens']] == [
      float(x) for x in score.values.logprob_L
    ]
    assert [len(t['top']) for t in row['tokens']] == [2] * score.token_count
  assert row['tokens'][1]['text'] == '\\xc3' and row['gzip'] > 8


def test_a_table_has_a_line_for_each_text_and_one_for_all(
  run, wanted, tmp_path
):
  path = tmp_path / 'lines.txt'
  path.write_text('\n'.join(TEXTS))
  code, out, err = launchers.run(
    'score', f'--workdir={run}', f'--input={path}', '--lines'
  )
  assert (code, err) == (0, '')
  head, *lines, total = (line.split() for line in out.splitlines())
  assert head[0] == 'text' and head[-1] == 'perplexity'
  assert [line[-7:-4] for line in lines] == [
    [str(x.token_count), str(x.byte_count), f'{x.loss:.4f}'] for x in wanted
  ]
  assert lines[1][-4:-1] == ['-'] * 3  # an empty text has no bits per byte
  tokens = sum(x.token_count for x in wanted)
  logprob = sum(x.logprob for x in wanted)
  size = sum(map(len, map(str.encode, TEXTS)))
  assert total[:5] == ['all', '3', 'texts', str(tokens), str(size)]
  np.testing.assert_allclose(float(total[5]), -logprob / tokens, atol=1e-4)
  # The empty text's end costs bits too, but has no bytes: it isn't in them.
  bits = -(wanted[0].logprob + wanted[2].logprob) / math.log(2) / size
  np.testing.assert_allclose(float(total[6]), bits, atol=1e-4)


def test_a_page_and_the_rows_before_a_bad_one_are_written(
  run, wanted, tmp_path
):
  path, page = rows(tmp_path), tmp_path / 'page.html'
  with path.open('a') as file:
    file.write('{"text": \n')
  flags = f'--workdir={run}', f'--input={path}', '--json', f'--html={page}'
  code, out, err = launchers.run('score', *flags)
  assert code == 1 and err.startswith(f'error: {path}:4: not JSON')
  losses = [json.loads(line)['loss'] for line in out.splitlines()]
  assert losses == [x.loss for x in wanted]
  assert 'tokens' not in json.loads(out.splitlines()[0])
  text = page.read_text()
  assert text.count('<article>') == 3 and '"width":5' in text
  assert [*tmp_path.glob('*.part')] == []


def test_tokens_are_printed_for_people(run, wanted):
  flags = f'--workdir={run}', '--text=the gate', '--top_k=2'
  code, out, err = launchers.run('score', *flags)
  assert (code, err) == (0, '')
  lines = out.splitlines()
  assert len(lines) == 3 + 9
  first = lines[3].split()
  bits = -wanted[0].values.logprob_L[0] / math.log(2)
  np.testing.assert_allclose(float(first[0]), bits, atol=1e-3)
  assert first[1] == str(wanted[0].values.rank_L[0]) and first[2] == "'t'"
  assert sum(x.endswith('%') for x in first) == 2
  assert lines[-1].split()[2] == 'end'


def test_standard_input_is_a_text_or_rows(run, wanted):
  score = 'score', f'--workdir={run}', '--input=-', '--json'
  code, out, err = launchers.run(*score, stdin=TEXTS[0])
  assert (code, err) == (0, '')
  assert json.loads(out)['loss'] == wanted[0].loss
  row = json.dumps({'x': TEXTS[0]})
  code, out, _ = launchers.run(*score, '--column=x', stdin=row)
  assert code == 0
  assert json.loads(out)['loss'] == wanted[0].loss
  assert json.loads(out)['id'] == 'standard input:1'


@pytest.mark.parametrize(
  ('flags', 'message'),
  (
    ([], 'give either --text or --input'),
    (['--text=a', '--input=b'], 'give either --text or --input'),
    (['--text=a', '--lines'], '--lines and --column are of --input'),
    (['--input=absent'], "input='absent': no such file"),
    (['--text=a', '--top_k=-1'], 'top_k=-1: give 0 or more'),
    (['--text=a', '--html=.'], "html='.': give a file"),
    (['--text=a', '--html=no/x.html'], "html='no/x.html': give a file"),
    (['--text=a', '--checkpoint=x'], "checkpoint='x': give 'best'"),
    (['--text=a'], "workdir='absent'"),
  ),
  ids=str,
)
def test_wrong_flags_are_one_line_each(flags, message):
  code, out, err = launchers.run('score', '--workdir=absent', *flags)
  assert code == 1 and out == ''
  assert err.startswith('error: ') and message in err and err.count('\n') == 1
