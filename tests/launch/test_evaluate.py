"""`launch.evaluate` on dialogues, and a conversation."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import loop
from tests.support import launchers
from tests.support import shared
from tests.support import tiny

pytestmark = pytest.mark.slow
DIALOGUES = [
  {'turns': ['how are you', 'well and you', 'me too']},
  {'turns': ['where is it', 'over there']},
]


@pytest.fixture(autouse=True, scope='module')
def _shared():
  with shared.programs():
    yield


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  path = folder / 'dialogues.jsonl'
  path.write_text('\n'.join(map(json.dumps, DIALOGUES * 8)))
  raw = tiny.raw_config(str(path))
  raw.task.name = 'dialogue'
  raw.task.reply_tokens = 8
  raw.data.source = 'jsonl'
  raw.data.field = 'turns'
  raw.train.steps = 4
  raw.data.splits = (90, 0, 10)  # nothing to evaluate in training
  loop.train(config_lib.parse(raw), str(folder / 'run'))
  return folder / 'run'


def test_scores_are_printed_and_written(workdir):
  flags = f'--workdir={workdir}', '--split=test'
  code, out, err = launchers.run('evaluate', *flags)
  assert code == 0, err
  folder = workdir / 'evaluation' / 'test'
  row = json.loads((folder / 'scores.json').read_text())
  assert {'perplexity', 'bleu', 'rougeL', 'valid'} <= row.keys()
  assert f'perplexity     {row["perplexity"]:.3f}' in out
  assert f'rougeL         {row["rougeL"]:.4f}   95 %' in out


def test_wrong_flags_are_one_line_each(workdir):
  for flag, message in (
    ('--limit=-1', 'error: --limit=-1: give 0 or more'),
    ('--split=dev', "error: --split='dev': choose one of"),
    ('--checkpoint=99', 'no checkpoint of step 99'),
  ):
    code, _, err = launchers.run('evaluate', f'--workdir={workdir}', flag)
    assert code == 1 and message in err and 'Traceback' not in err


def test_a_conversation_reads_a_turn_a_line(workdir):
  flags = '--chat', '--max_new_tokens=5', '--temperature=0'
  code, out, err = launchers.run(
    'generate',
    f'--workdir={workdir}',
    *flags,
    stdin='hello\nhow are you\n/back\n/again\n/back\n/back\nhello\n',
  )
  assert code == 0 and 'error: back: no turn is left' in err
  replies = out.splitlines()
  assert len(replies) == 4 and replies[0] == replies[2] == replies[3]


def test_a_conversation_has_no_use_for_some_flags(workdir):
  for flag in ('--prompt=hello', '--samples=1', '--json'):
    flags = '--chat', f'--workdir={workdir}', flag
    code, _, err = launchers.run('generate', *flags)
    assert code == 1 and 'it has no effect with --chat: leave it out' in err
    assert flag[2:].partition('=')[0] in err and 'Traceback' not in err
