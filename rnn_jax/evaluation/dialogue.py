"""Writes replies for a split and scores them against the references.

A reply has task.min_reply_tokens to task.reply_tokens tokens: small models
end early, which BLEU punishes. Each is the most likely, or is sampled with one
seed and task.reply_temperature: a small model's most likely reply is the same
for all turns, and its scores depend on that one sentence.
With task.turns 'all' each turn but the first is a reply to the true turns
before it; with 'first' only the second turn is. BLEU is sacrebleu's (Post, "A
Call for Clarity in Reporting BLEU Scores", 2018), as a share of 1: of all
replies together, and as 'sentence_bleu' the mean over replies, each with its
exponential smoothing and no orders that a short reply lacks. ROUGE-1, -2 and -L
are mean F-measures of the rouge-score package (Lin, "ROUGE", 2004);
BERTScore is evaluation/bertscore.py's. 'valid' is the share of replies with any
text, 'words' their mean length; distinct-1 and -2 (Li et al., "A
Diversity-Promoting Objective Function for Neural Conversation Models", 2016)
are the distinct words and pairs of words of all replies, over all their words.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import sacrebleu

from rnn_jax.data.text import turns
from rnn_jax.evaluation import bertscore
from rnn_jax.evaluation import intervals
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.training import evaluate

TAKES_SCORER = True  # of BERTScore
ROUGE = ('rouge1', 'rouge2', 'rougeL')


def predict(run: evaluate.Run, split: str, limit: int) -> list[dict[str, Any]]:
  """Returns a dict for each reply of the first `limit` dialogues (0: all).

  Keys: name, turn (its number in the dialogue, from 0), history, reference,
  predicted, reason (why it ended). With a chat template, what is read between
  two replies is one turn of the history, as the template frames it.
  """
  documents = run.corpus.documents[split]
  names = documents.names
  maker = run.corpus.examples(run.config.data, split)
  tokenizer = run.corpus.tokenizer
  framing = turns.of(tokenizer)
  contexts, rows = [], []
  for n in range(min(len(documents), limit or len(documents))):
    ids, history = framing.begin, []
    for turn, part in enumerate(maker.parts(n)):
      text = _text(tokenizer, part)
      if framing.is_written(turn):
        contexts.append(ids)
        rows.append(
          {
            'name': names[n],
            'turn': turn,
            'history': [*history],
            'reference': text,
          }
        )
      ids = np.concatenate([ids, part])
      history.append(text)
  replies = _write(run, contexts)
  return [row | reply for row, reply in zip(rows, replies, strict=True)]


def score_run(
  run: evaluate.Run,
  predictions: Sequence[dict[str, Any]],
  scorer: bertscore.Scorer | None,
) -> dict[str, Any]:
  """Returns the `scores` of a run's predictions."""
  del run
  return scores(predictions, scorer)


def scores(
  predictions: Sequence[dict[str, Any]],
  scorer: bertscore.Scorer | None = None,
) -> dict[str, Any]:
  """Returns the scores of predictions, with 'intervals' of 95 %.

  An interval resamples dialogues with all their replies, which depend on each
  other. Distinct n-grams have none: a sample with repeats has fewer of them.

  Args:
    predictions: of `predict`.
    scorer: of BERTScore; None: no BERTScore.
  """
  written = [row['predicted'] for row in predictions]
  dialogues = [row['name'] for row in predictions]
  values = _rouge(predictions)
  if scorer:
    values |= scorer.scores(predictions)
  values['valid'] = np.array([bool(text.strip()) for text in written], float)
  values['words'] = np.array([len(text.split()) for text in written], float)
  counts, values['sentence_bleu'] = bleu_counts(predictions)
  each = np.ones(len(written))
  edges = {
    name: intervals.of_groups(np.divide, dialogues, x, each)
    for name, x in values.items()
  }
  return {
    'bleu': bleu(*counts.sum(0)),
    **{name: float(np.mean(x)) for name, x in values.items()},
    'distinct1': distinct(written, 1),
    'distinct2': distinct(written, 2),
    'intervals': {
      'bleu': intervals.of_groups(bleu, dialogues, *counts.T),
      **edges,
    },
  }


def bleu_counts(
  predictions: Sequence[dict[str, Any]],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns what `bleu` needs, one row per reply, and each reply's BLEU.

  Columns: words written and given, n-grams that match, and those written; their
  sum over the replies is the corpus's.
  """
  # Datasets of dialogues have spaces around their full stops: `force` says that
  # this is known. The order doesn't affect the counts.
  metric = sacrebleu.metrics.BLEU(force=True, effective_order=True)
  each = [
    metric.sentence_score(row['predicted'], [row['reference']])
    for row in predictions
  ]
  counts = [[x.sys_len, x.ref_len, *x.counts, *x.totals] for x in each]
  return np.array(counts), np.array([x.score / 100 for x in each])


def bleu(written: float, given: float, *counts: float) -> float:
  """Returns BLEU as a share of 1, of summed `bleu_counts`."""
  matches, totals = np.split(np.array(counts), 2)
  result = sacrebleu.metrics.BLEU.compute_bleu(
    matches.tolist(),
    totals.tolist(),
    int(written),
    int(given),
    smooth_method='exp',
  )
  return result.score / 100


def distinct(texts: Sequence[str], n: int) -> float:
  """Returns distinct n-grams of all texts over all their words; 0 without.

  It is divided by words for every n, as published.
  """
  ngrams, count = set(), 0
  for text in texts:
    words = text.split()
    count += len(words)
    ngrams.update(zip(*(words[k:] for k in range(n)), strict=False))
  return len(ngrams) / max(count, 1)


def _rouge(predictions):
  """Returns {name: F-measure of each reply}."""
  from rouge_score import rouge_scorer  # takes long to import

  scorer = rouge_scorer.RougeScorer(ROUGE, use_stemmer=True)
  each = [
    scorer.score(row['reference'], row['predicted']) for row in predictions
  ]
  return {
    name: np.array([score[name].fmeasure for score in each]) for name in ROUGE
  }


def _text(tokenizer, turn):
  return tokenizer.decode(turn).strip()


def _write(run, contexts):
  """Returns what the model writes after each context."""
  options = generate.Options(
    max_new_tokens=run.config.task.reply_tokens,
    min_new_tokens=run.config.task.min_reply_tokens,
    sampling=sampling.Sampling(run.config.task.reply_temperature),
  )
  generator = generate.Generator(
    run.programs.task.model, run.params, run.corpus.tokenizer
  )
  # Contexts of similar length share a batch, which pads them to the longest.
  order = sorted(range(len(contexts)), key=lambda n: len(contexts[n]))
  generation = generator.generate([contexts[n] for n in order], options)
  replies = dict(zip(order, generation.completions, strict=True))
  return [
    {'predicted': reply.text.strip(), 'reason': reply.reason}
    for _, reply in sorted(replies.items(), key=lambda item: item[0])
  ]
