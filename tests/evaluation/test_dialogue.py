"""Replies and their scores, on dialogues that a small model learns."""

import json
import sys

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.evaluation import dialogue
from rnn_jax.evaluation import run as run_lib
from rnn_jax.inference import conversation
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests import tiny

TURNS = ['how are you', 'very well', 'where is it', 'over there']


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp('dialogue')
  row = json.dumps({'turns': TURNS})
  (folder / 'all.jsonl').write_text('\n'.join([row] * 12))
  raw = tiny.raw_config(str(folder / 'all.jsonl'))
  raw.task.name = 'dialogue'
  raw.task.reply_tokens = 20
  raw.data.source = 'jsonl'
  raw.data.field = 'turns'
  raw.data.length = 64
  raw.model.width = 32
  raw.optimizer.learning_rate = 2e-2
  raw.train.steps = 60
  raw.train.checkpoint_every = 60
  raw.evaluate.every = 60
  workdir = folder / 'run'
  loop.train(config_lib.parse(raw), str(workdir))
  return evaluate.Run.open(workdir), workdir


def test_each_reply_is_written_behind_the_turns_as_they_were(trained):
  run, workdir = trained
  row = run_lib.evaluate_run(run, workdir, 'validation', limit=2)
  lines = (workdir / 'evaluation/validation/predictions.jsonl').read_text()
  rows = [json.loads(line) for line in lines.splitlines()]
  assert [r['turn'] for r in rows] == [1, 2, 3] * 2
  assert [r['reference'] for r in rows] == TURNS[1:] * 2
  assert rows[1]['history'] == TURNS[:2]
  assert [r['predicted'] for r in rows] == TURNS[1:] * 2
  for name in ('rouge1', 'rougeL', 'valid'):
    assert row[name] == pytest.approx(1)
  assert row['perplexity'] < 1.2


def test_a_conversation_is_what_one_pass_over_its_turns_makes(trained):
  run, workdir = trained
  generator = generate.Generator.from_workdir(workdir)
  options = generate.Options(20, sampling.Sampling(0.0))
  talk = conversation.Conversation(generator, options)
  pieces = []
  assert talk.say(TURNS[0]) == TURNS[1]
  reply = talk.say(f' {TURNS[2]}\n', lambda _, piece: pieces.append(piece))
  assert reply == ''.join(pieces) == TURNS[3]
  talk.reset()
  assert talk.say(TURNS[0]) == TURNS[1]
  (asked,) = generator.generate([TURNS[0]], options).completions
  assert asked.text == TURNS[1]


def test_a_reply_that_was_cut_off_ends_before_the_next_turn(trained):
  run, workdir = trained
  generator = generate.Generator.from_workdir(workdir)
  cut = conversation.Conversation(
    generator, generate.Options(4, sampling.Sampling(0.0))
  )
  assert cut.say(TURNS[0]) == TURNS[1][:4]
  reply = cut.say(TURNS[2])
  text = f'{TURNS[0]}\n{TURNS[1][:4]}\n{TURNS[2]}'.split('\n')
  ids = [run.corpus.tokenizer.boundary]
  for turn in text:
    ids += [*turn.encode(), run.corpus.tokenizer.boundary]
  options = generate.Options(4, sampling.Sampling(0.0))
  (whole,) = generator.generate([np.array(ids)], options).completions
  assert reply == whole.text


def test_what_cannot_be_said_changes_nothing(trained):
  _, workdir = trained
  generator = generate.Generator.from_workdir(workdir)
  options = generate.Options(20, sampling.Sampling(0.0))
  talk = conversation.Conversation(generator, options)
  with pytest.raises(errors.InputError, match="turn=' ': say something"):
    talk.say(' ')
  assert talk.say(TURNS[0]) == TURNS[1]
  with pytest.raises(errors.InputError, match='stop=.*leave it out'):
    conversation.Conversation(generator, generate.Options(stop=('x',)))
  generator.asks = False
  with pytest.raises(errors.InputError, match="task.name='dialogue'"):
    conversation.Conversation(generator, options)


def test_scores_tell_a_good_reply_from_a_bad_one():
  references = ['the cat sat on the mat today', 'i like this very much indeed']
  rows = [{'reference': r, 'predicted': r} for r in references]
  assert dialogue.scores(rows)['bleu'] == pytest.approx(1)
  rows[1]['predicted'] = ''
  scores = dialogue.scores(rows)
  assert scores['valid'] == 0.5
  assert scores['rouge1'] == scores['rouge2'] == scores['rougeL'] == 0.5
  assert 0 < scores['bleu'] < 1
  rows[1]['predicted'] = 'i like that very much'
  # 4 of 5 words and of 6 words: F = 2 * 4 / 11; bigrams 2 of 4 and of 5.
  scores = dialogue.scores(rows)
  assert scores['rouge1'] == pytest.approx((1 + 8 / 11) / 2)
  assert scores['rouge2'] == pytest.approx((1 + 4 / 9) / 2)


def test_bertscore_names_the_missing_package(monkeypatch):
  monkeypatch.setitem(sys.modules, 'bert_score', None)
  with pytest.raises(errors.InputError, match="--bertscore='m'.*pip install"):
    dialogue.bert_score([], 'm')
