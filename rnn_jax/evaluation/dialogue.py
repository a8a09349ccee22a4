"""Replies written for a split, and their scores against the given ones.

A reply has task.least_reply_tokens to task.reply_tokens tokens: small models
end soon, which BLEU takes amiss. Each is the likeliest, or drawn by one seed
with task.reply_temperature: a small model's likeliest reply is the same one to
all turns, and its scores tell that one sentence's luck.
With task.turns 'all' each turn but the first is a reply, behind the turns as
they were; with 'first' the second turn alone. BLEU is sacrebleu's (Post, "A
Call for Clarity in Reporting BLEU Scores", 2018), as a share of 1; ROUGE-1, -2
and -L are mean F-measures of the rouge-score package (Lin, "ROUGE", 2004);
BERTScore is evaluation/bertscore.py's. 'valid' is the share of replies with any
text, 'words' their mean length; distinct-1 and -2 (Li et al., "A
Diversity-Promoting Objective Function for Neural Conversation Models", 2016)
are the distinct words and pairs of words of all replies, over all their words.
"""

import numpy as np
import sacrebleu
from rouge_score import rouge_scorer

from rnn_jax.evaluation import intervals
from rnn_jax.inference import generate
from rnn_jax.inference import sampling

ROUGE = ('rouge1', 'rouge2', 'rougeL')


def predict(run, split, limit):
  """Returns a dict for each reply of the first `limit` dialogues (0: all).

  Keys: name, turn (its number in the dialogue, from 0), history, reference,
  predicted, reason (why it ended).
  """
  documents = run.corpus.documents[split]
  names = documents.names
  maker = run.corpus.examples(run.config.data, split)
  tokenizer = run.corpus.tokenizer
  asked, rows = [], []
  for n in range(min(len(documents), limit or len(documents))):
    turns = maker.turns(n)
    ids = np.array([tokenizer.boundary])
    history = []
    for turn, reply in enumerate(turns[1:], 1):
      ids = np.concatenate([ids, turns[turn - 1]])
      history.append(_text(tokenizer, turns[turn - 1]))
      asked.append(ids)
      rows.append(
        {
          'name': names[n],
          'turn': turn,
          'history': [*history],
          'reference': _text(tokenizer, reply),
        }
      )
  written = _write(run, asked)
  return [row | more for row, more in zip(rows, written, strict=True)]


def scores(predictions, scorer=None):
  """Returns the scores of predictions, with 'intervals' of 95 %.

  An interval draws dialogues, all replies of each: those depend on each other.
  Distinct n-grams have none, for a draw with repeats has fewer of them.

  Args:
    predictions: of `predict`.
    scorer: evaluation.bertscore.Scorer; None: no BERTScore.
  """
  written = [row['predicted'] for row in predictions]
  dialogues = [row['name'] for row in predictions]
  found = _rouge(predictions)
  if scorer:
    found['bertscore_f1'] = scorer.f1(predictions)
  found['valid'] = np.array([bool(text.strip()) for text in written], float)
  found['words'] = np.array([len(text.split()) for text in written], float)
  counts = bleu_counts(predictions)
  each = np.ones(len(written))
  edges = {
    name: intervals.of_groups(np.divide, dialogues, x, each)
    for name, x in found.items()
  }
  return {
    'bleu': bleu(*counts.sum(0)),
    **{name: float(np.mean(x)) for name, x in found.items()},
    'distinct1': distinct(written, 1),
    'distinct2': distinct(written, 2),
    'intervals': {
      'bleu': intervals.of_groups(bleu, dialogues, *counts.T),
      **edges,
    },
  }


def bleu_counts(predictions):
  """Returns what `bleu` is made of, a row a reply, whose sums are a corpus's.

  Columns: words written and given, n-grams that match, and those written.
  """
  # Data sets of dialogues come with spaces around their full stops: `force`
  # says that this is known. The order has no part in the counts.
  metric = sacrebleu.metrics.BLEU(force=True, effective_order=True)
  rows = []
  for row in predictions:
    one = metric.sentence_score(row['predicted'], [row['reference']])
    rows.append([one.sys_len, one.ref_len, *one.counts, *one.totals])
  return np.array(rows)


def bleu(written, given, *counts):
  """Returns BLEU as a share of 1, of summed `bleu_counts`."""
  matches, totals = np.split(np.array(counts), 2)
  found = sacrebleu.metrics.BLEU.compute_bleu(
    matches.tolist(),
    totals.tolist(),
    int(written),
    int(given),
    smooth_method='exp',
  )
  return found.score / 100


def distinct(texts, n):
  """Returns distinct n-grams of all texts over all their words, 0 of none.

  The share is of words whatever n, as published.
  """
  found, count = set(), 0
  for text in texts:
    words = text.split()
    count += len(words)
    found.update(zip(*(words[k:] for k in range(n)), strict=False))
  return len(found) / max(count, 1)


def _rouge(predictions):
  """Returns {name: F-measure of each reply}."""
  scorer = rouge_scorer.RougeScorer(ROUGE, use_stemmer=True)
  each = [
    scorer.score(row['reference'], row['predicted']) for row in predictions
  ]
  return {
    name: np.array([score[name].fmeasure for score in each]) for name in ROUGE
  }


def _text(tokenizer, turn):
  return tokenizer.decode(turn).strip()


def _write(run, asked):
  """Yields what the model writes behind each history."""
  options = generate.Options(
    max_new_tokens=run.config.task.reply_tokens,
    min_new_tokens=run.config.task.least_reply_tokens,
    sampling=sampling.Sampling(run.config.task.reply_temperature),
  )
  generator = generate.Generator(
    run.steps.task.model, run.params, run.corpus.tokenizer
  )
  # Histories of like length share a batch, which pads them to the longest.
  order = sorted(range(len(asked)), key=lambda n: len(asked[n]))
  completions = generator.generate([asked[n] for n in order], options)
  found = dict(zip(order, completions.completions, strict=True))
  for n in range(len(asked)):
    yield {'predicted': found[n].text.strip(), 'reason': found[n].reason}
