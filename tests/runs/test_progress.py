"""Tables and lines of the terminal."""

import sys

import numpy as np

from rnn_jax.runs import progress


def test_the_parameter_table_adds_up():
  params = {'a': {'kernel': np.zeros((3, 4))}, 'b': np.zeros(1000)}
  lines = progress.parameter_table(params).splitlines()
  assert lines[0].split() == ['a/kernel', '3x4', '12']
  assert lines[-1].split() == ['total', '1,012']
  assert len({len(line) for line in lines}) == 1


def test_a_reply_is_not_glued_to_its_prompt():
  assert progress.sample('Hello .', ' Hi .\n', True) == '> Hello .\nHi .'
  assert progress.sample('def f', '(x):\n', False) == 'def f(x):\n'


def test_each_report_is_a_line_without_a_terminal(capsys):
  display = progress.Display(10, 0)
  display.advance()
  display.report(1, 'loss 2.0')
  display.say('saved')
  display.close()
  assert capsys.readouterr().out == 'step 1/10  loss 2.0\nsaved\n'


def test_lines_stay_above_the_bar_of_a_terminal(monkeypatch, capsys):
  monkeypatch.setattr(sys.stderr, 'isatty', lambda: True, raising=False)
  display = progress.Display(10, 2)
  display.advance()
  display.report(3, 'loss 2.0')
  display.say('step 3  validation loss 2.5')
  display.close()
  shown = capsys.readouterr()
  assert shown.out == 'step 3  validation loss 2.5\n'
  bars = shown.err.replace('\r', '\n')
  assert '3/10, loss 2.0' in bars and '<' not in bars  # tqdm's own estimate


def test_the_evaluation_table_shows_compressors_beside_bits_per_byte():
  row = {
    'split': 'test',
    'step': 5,
    'documents': 7,
    'tokens': 1000,
    'bytes': 990,
    'loss': 1.0,
    'perplexity': 2.7,
    'accuracy': 0.5,
  }
  assert 'gzip' not in progress.evaluation_table(row)
  row |= {'bits_per_byte': 1.5, 'gzip': 2.0, 'xz': 1.75}
  table = progress.evaluation_table(row)
  for text in ('1,000 predictions', '1.5000', '2.0000   gzip', '1.7500   xz'):
    assert text in table
