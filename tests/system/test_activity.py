"""Lines of what goes on, when a command has been quiet."""

import re
import threading

import pytest

from rnn_jax.system import activity


@pytest.fixture
def quick(monkeypatch):
  monkeypatch.setattr(activity, 'QUIET', 0.02)


def lines_of(capsys, count, body):
  """Runs the body until `count` lines were printed. Returns them."""
  lines = []
  for _ in range(500):
    body()
    lines += capsys.readouterr().err.splitlines()
    if len(lines) >= count:
      break
    threading.Event().wait(0.01)
  return lines


def test_a_quiet_command_says_its_name(quick, capsys):
  with activity.reported('train'):
    lines = lines_of(capsys, 2, lambda: None)
  assert all(re.fullmatch(r'train: started \d+ s ago', line) for line in lines)
  assert len(lines) >= 2


def test_the_innermost_activity_is_named_with_its_count(quick, capsys):
  with activity.reported('evaluate'):
    with activity.doing('evaluating', 900, 'batches') as done:
      done(120)
      lines = lines_of(capsys, 1, lambda: None)
      since = r'started \d+ s ago'
      assert re.fullmatch(f'evaluating: 120 of 900 batches, {since}', lines[0])
    lines = lines_of(capsys, 2, lambda: None)
    assert lines[-1].startswith('evaluate: ')


def test_an_unknown_total_is_left_out(quick, capsys):
  with activity.reported('x'), activity.doing('y', unit='texts') as done:
    done(3)
    assert lines_of(capsys, 1, lambda: None)[0].startswith('y: 3 texts, ')


def test_the_first_line_comes_early(monkeypatch, capsys):
  monkeypatch.setattr(activity, 'FIRST', 0.02)
  with activity.reported('profile'), activity.doing('compiling'):
    lines = lines_of(capsys, 1, lambda: None)
    threading.Event().wait(0.1)
  assert lines[0].startswith('compiling: ')
  assert len(lines) == 1 and capsys.readouterr().err == ''


def test_a_command_that_waits_for_its_user_is_silent(quick, capsys):
  with activity.reported('generate'), activity.waiting():
    threading.Event().wait(0.2)
  assert capsys.readouterr().err == ''


def test_a_command_that_speaks_is_not_interrupted(monkeypatch, capsys):
  monkeypatch.setattr(activity, 'QUIET', 0.4)
  with activity.reported('train'):
    for _ in range(60):
      activity.spoke()
      threading.Event().wait(0.01)
  assert capsys.readouterr().err == ''


def test_lines_can_go_around_a_progress_bar(quick, capsys):
  said = threading.Event()
  activity.print_with(lambda line: line.startswith('train: ') and said.set())
  with activity.reported('train'):
    assert said.wait(30)
  activity.print_with(None)
  assert capsys.readouterr().err == ''
