"""Replies and their scores, on dialogues that a small model learns."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import sacrebleu

from rnn_jax import errors
from rnn_jax.data.text import documents
from rnn_jax.data.text import turns
from rnn_jax.evaluation import bertscore
from rnn_jax.evaluation import dialogue
from rnn_jax.evaluation import run as run_lib
from rnn_jax.inference import conversation
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.inference import score
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import evaluate
from tests.support import chats
from tests.support import dialogues
from tests.support import shared

TURNS = dialogues.TURNS


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  with shared.programs():
    workdir = dialogues.train(tmp_path_factory.mktemp('dialogue'))
    yield evaluate.Run.open(workdir), workdir


def test_each_reply_follows_the_true_turns(trained):
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
  assert row['distinct1'] == 7 / 14  # of 7 words, twice


def test_replies_by_a_template_follow_its_text(tmp_path):
  workdir = dialogues.write(tmp_path, chats.make(chats.LLAMA3))
  rows = dialogue.predict(evaluate.Run.open(workdir), 'validation', 1)
  assert [r['turn'] for r in rows] == [1, 3]
  assert [r['reference'] for r in rows] == TURNS[1::2]
  assert rows[1]['history'][1] == TURNS[1]
  marks = '<|start|>{}<|end|>\n\n{}'.format
  said = [
    marks(*message) + '<|eot|>' * (message.content != '')
    for message in turns.alternate([*TURNS[:3], ''])
  ]
  generator = generate.Generator.from_workdir(workdir)
  options = generate.Options(20, sampling.Sampling(0.0))
  whole = ['<s>' + ''.join(said[:1] + said[3:]), '<s>' + ''.join(said)]
  ids = [np.array(chats.ids(text)) for text in whole]
  written = generator.generate(ids, options).completions
  assert [r['predicted'] for r in rows] == [x.text.strip() for x in written]
  assert [r['reason'] for r in rows] == [x.reason for x in written]
  talk = conversation.Conversation(generator, options)
  assert talk.say(TURNS[0]) == written[0].text
  scorer = score.Scorer(bundle_lib.read(workdir, 'best'))
  (scored,) = scorer.score(['\n'.join(TURNS)])
  spans = scored.spans_Lx2[scored.framed.counted_L]
  said = ''.join(scored.text[start:stop] for start, stop in spans)
  assert said == TURNS[1] + TURNS[3]


def rows(*pairs, name='dialogue {}'):
  return [
    {'name': name.format(n), 'predicted': predicted, 'reference': reference}
    for n, (predicted, reference) in enumerate(pairs)
  ]


GOOD = ['the cat sat on the mat today', 'i like this very much indeed']


def test_replies_are_sampled_with_a_temperature_and_one_seed(trained):
  run, _ = trained
  task = dataclasses.replace(run.config.task, reply_temperature=20.0)
  drawn = dataclasses.replace(
    run, config=dataclasses.replace(run.config, task=task)
  )
  result = [
    [row['predicted'] for row in dialogue.predict(one, 'validation', 2)]
    for one in (run, drawn, drawn)
  ]
  assert result[0] == TURNS[1:] * 2
  assert result[1] == result[2] and len({*result[1]}) == 6


def test_names_are_made_once(trained, monkeypatch):
  made, names = [], documents.Documents.names.fget

  def counted(self):
    made.append(self)
    return names(self)

  monkeypatch.setattr(documents.Documents, 'names', property(counted))
  run, _ = trained
  assert len(dialogue.predict(run, 'validation', 2)) == 6
  assert len(made) == 1


def test_scores_of_good_and_bad_replies():
  same = rows(*((text, text) for text in GOOD))
  assert dialogue.scores(same)['bleu'] == pytest.approx(1)
  assert dialogue.scores(same)['sentence_bleu'] == pytest.approx(1)
  scores = dialogue.scores(rows((GOOD[0], GOOD[0]), ('', GOOD[1])))
  assert scores['valid'] == 0.5
  assert scores['rouge1'] == scores['rouge2'] == scores['rougeL'] == 0.5
  assert 0 < scores['bleu'] < 1
  assert scores['sentence_bleu'] == pytest.approx(0.5)
  assert scores['words'] == 3.5
  # 4 of 5 words and of 6 words: F = 2 * 4 / 11; bigrams 2 of 4 and of 5.
  bad = 'i like that very much'
  scores = dialogue.scores(rows((GOOD[0], GOOD[0]), (bad, GOOD[1])))
  assert scores['rouge1'] == pytest.approx((1 + 8 / 11) / 2)
  assert scores['rouge2'] == pytest.approx((1 + 4 / 9) / 2)
  assert json.loads(json.dumps(scores)) == scores


PAIRS = (
  ('i like that very much .', GOOD[1]),
  ('the cat sat on a mat', GOOD[0]),
  ('', 'no'),
  ("yes, it is. isn't it?", 'it is, yes, it is'),
)


def test_bleu_is_sacrebleu_s_of_the_corpus_and_of_each_reply():
  metric = sacrebleu.metrics.BLEU(force=True)
  for pairs in (PAIRS, PAIRS[:1], PAIRS[2:3], PAIRS[3:]):
    corpus = metric.corpus_score([p for p, _ in pairs], [[r for _, r in pairs]])
    counts, each = dialogue.bleu_counts(rows(*pairs))
    result = dialogue.bleu(*counts.sum(0))
    assert result == pytest.approx(corpus.score / 100, abs=1e-12)
    alone = [sacrebleu.sentence_bleu(p, [r]).score / 100 for p, r in pairs]
    np.testing.assert_allclose(each, alone)


def test_intervals_resample_dialogues_rather_than_replies():
  one = rows(*PAIRS * 10)
  whole = rows(*PAIRS * 10, name='the only one')
  scores = dialogue.scores(one)
  for name, (low, high) in scores['intervals'].items():
    assert low < scores[name] < high, name
  assert scores['intervals'].keys() == {
    'bleu',
    'sentence_bleu',
    'rouge1',
    'rouge2',
    'rougeL',
    'valid',
    'words',
  }
  # A split of a single dialogue says nothing of others.
  scores = dialogue.scores(whole)
  for name, edges in scores['intervals'].items():
    assert edges == pytest.approx([scores[name]] * 2), name


def test_distinct_n_grams_are_counted_over_all_replies():
  replies = ['i do not know', 'i do', '', 'know']
  # 7 words: i, do, not, know; i do, do not, not know. None spans two replies.
  assert dialogue.distinct(replies, 1) == 4 / 7
  assert dialogue.distinct(replies, 2) == 3 / 7
  assert dialogue.distinct(['', ' '], 1) == dialogue.distinct([], 2) == 0


class Half:
  """A scorer that finds each reply half right."""

  def scores(self, predictions):
    values = zip(bertscore.NAMES, (0.4, 0.6, 0.5), strict=True)
    return {name: np.full(len(predictions), x) for name, x in values}


def test_bertscore_is_one_of_the_scores():
  scores = dialogue.scores(rows(*PAIRS), Half())
  assert [scores[name] for name in bertscore.NAMES] == [0.4, 0.6, 0.5]
  assert scores['intervals']['bertscore_f1'] == [0.5, 0.5]


@pytest.fixture
def untouched(trained, monkeypatch):
  """A trained run that fails once it is asked for replies."""

  def fail(*_):
    raise AssertionError('predicted')

  monkeypatch.setattr(dialogue, 'predict', fail)
  return trained


def test_a_missing_package_is_an_error_before_decoding(untouched, monkeypatch):
  monkeypatch.setitem(sys.modules, 'bert_score', None)
  with pytest.raises(errors.InputError, match="--bertscore='m'.*pip install"):
    run_lib.evaluate_run(*untouched, 'validation', bertscore='m')


def test_replies_are_kept_if_scoring_fails(trained, monkeypatch):
  run, workdir = trained
  path = workdir / 'evaluation/train/predictions.jsonl'

  def fail(*_):
    raise MemoryError('of the scores')

  monkeypatch.setattr(dialogue, 'scores', fail)
  with pytest.raises(MemoryError):
    run_lib.evaluate_run(run, workdir, 'train', limit=1)
  assert len(path.read_text().splitlines()) == 3
